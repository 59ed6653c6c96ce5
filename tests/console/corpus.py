"""Text that wants to be more than text.

Whoever gets through leaves a trace: `window.__pwned`, an element whose id begins with `pwned`, or a request to `/pwned`.
"""

_JS = "window.__pwned=1"
_SVG = "http://www.w3.org/2000/svg"

MARKUP = [
    f"<script>{_JS}</script>",
    f"<SCRIPT SRC=/pwned.js></SCRIPT><script>{_JS}</script >",
    f"<scr<script>ipt>{_JS}</scr</script>ipt>",
    f"</script><script>{_JS}</script>",
    f"<img src=/pwned.png onerror={_JS}>",
    f"<img/src=x/onerror={_JS}//",
    f"<svg onload={_JS}>",
    f"<svg><script>{_JS}</script></svg>",
    f"<svg xmlns='{_SVG}'><animate onbegin={_JS} attributeName=x dur=1s></svg>",
    f"<svg><a xlink:href='javascript:{_JS}'><text id=pwned-svg>x</text></a></svg>",
    f"</text></svg><script>{_JS}</script>",
    f"</title></svg><b id=pwned-title onclick={_JS}>b</b>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={_JS}></style></mglyph></table></mtext></math>",
    f"</textarea><script>{_JS}</script>",
    f"</pre></code><b id=pwned-pre onmouseover={_JS}>b</b>",
    f"</details></summary><b id=pwned-details ontoggle={_JS}>b</b>",
    f"</option></select><input id=pwned-select autofocus onfocus={_JS}>",
    f"</style><script>{_JS}</script>",
    "</template><b id=pwned-template>b</b>",
    f"</noscript><iframe id=pwned-frame srcdoc='<script>parent.{_JS}</script>'></iframe>",
    f'<iframe src="javascript:parent.{_JS}"></iframe>',
    f'<object data="data:text/html,<script>parent.{_JS}</script>"></object>',
    f"<embed src=/pwned><details open ontoggle={_JS}>",
    "<base href=//pwned.example/>",
    "<meta http-equiv=refresh content='0;url=/pwned'>",
    "<link rel=stylesheet href=/pwned.css><link rel=preload as=script href=/pwned.js>",
    "<style>*{background:url(/pwned.css)}</style>",
    "<form id=pwned-form action=/pwned method=post><button>Approve</button></form>",
    "<input form=pwned-form type=submit value=Approve id=pwned-input>",
    "<plaintext>",
    f"<!--><script>{_JS}</script>-->",
    f"<![CDATA[<script>{_JS}</script>]]>",
    f"<?xml version='1.0'?><x:script xmlns:x='http://www.w3.org/1999/xhtml'>{_JS}</x:script>",
    "&lt;b id=pwned-entity&gt; &#60;script&#62; &amp;amp; &notanentity; &#x3c;",
]
ATTRIBUTES = [
    f'" onmouseover="{_JS}" x="',
    f"' onfocus='{_JS}' autofocus tabindex=1 '",
    f'"><script>{_JS}</script>',
    f"'><img src=x onerror={_JS}>",
    f"` onclick={_JS} `",
    '" style="position:fixed;inset:0" id="pwned-style',
    '" id="pwned-id" aria-label="Approve',
    "x onload=alert(1) y",
    f'" formaction="javascript:{_JS}',
    '" data-seq="0" hidden class="',
]
LINKS = [
    f"javascript:{_JS}",
    f"JaVaScRiPt:{_JS}//",
    f"java\tscript:{_JS}",
    f"\x01javascript:{_JS}",
    f"data:text/html,<script>parent.{_JS}</script>",
    "//pwned.example/",
    'https://pwned.example/?q="><b id=pwned-link>',
]
TEMPLATES = [
    "{{7*7}}",
    "{{ ''.__class__.__mro__ }} {% raw %} {# no #}",
    "{% include '/etc/passwd' %}",
    f"${{{_JS}}} #{{{_JS}}} <%= 7*7 %>",
    '<div hx-get="/pwned" hx-trigger="load" id="pwned-hx"></div>',
    '" hx-post="/pwned" hx-trigger="load" hx-vals="js:{a:window.__pwned=1}',
    '<a hx-on:click="window.__pwned=1" data-hx-on="load: window.__pwned=1" hx-boost="true">x</a>',
    '<div hx-swap-oob="true" id="main">pwned</div>',
    f"__proto__ constructor ');{_JS};//",
    f"\\u003cscript\\u003e{_JS}\\u003c/script\\u003e",
    f"\u2028{_JS}\u2029//",
]
LETTERS = [
    "invoice-\u202egpj.exe",
    "\u2066pay\u2069 \u2067bob\u2069 \u200fann\u200e",
    "a\x00b\x07c",
    "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "\x9b31m\x85next",
    "\U000e0068\U000e0069\U000e007f hidden tags",
    "zero\u200bwidth\u200d\ufeffjoin\u2060er",
    "Z\u0351\u0352\u0353a\u0334\u0335\u0336l\u0337\u0338g\u0340\u0341o",
    "\ufffe\uffff no letters",
    "раураl.соm Аpprove",  # letters of another alphabet
    "line one\r\nX-Injected: 1\r\n\r\nline two",
    "}</style>*{display:none}",
    "url(/pwned.css);background:red;/*",
    "' OR 1=1 -- \"; DROP TABLE runs;",
]
LONG = ["A" * 20_000, "word " * 2_000, "<b id=pwned-long>" + "()" * 3_000]

HOSTILE = [*MARKUP, *ATTRIBUTES, *LINKS, *TEMPLATES, *LETTERS]
"""Each in full; `LONG` may be cut."""
