"""What `/openapi.json` says of the ways in that are no operations of REST. Tests hold it against their routes."""

from __future__ import annotations

from typing import Any

_REQUEST = {"$ref": "#/components/schemas/RpcRequest"}
_ANSWER = {"$ref": "#/components/schemas/RpcAnswer"}
_ID = {"type": ["string", "number", "null"]}

# `Any` here and below: JSON.
SCHEMAS: dict[str, Any] = {
    "RpcRequest": {
        "type": "object",
        "title": "RpcRequest",
        "description": "A request of JSON-RPC 2.0; without an `id` it is a notification, and not answered.",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": {"const": "2.0", "description": "Always this."},
            "id": {**_ID, "description": "Comes back with the answer."},
            "method": {
                "type": "string",
                "description": "What to do, such as `session.run`; the answer to one that there is not names all.",
            },
            "params": {
                "type": ["object", "array"],
                "description": "By name, or in the order of the fields.",
            },
        },
    },
    "RpcAnswer": {
        "type": "object",
        "title": "RpcAnswer",
        "description": "An answer of JSON-RPC 2.0: `result`, or `error`.",
        "required": ["jsonrpc", "id"],
        "properties": {
            "jsonrpc": {"const": "2.0", "description": "Always this."},
            "id": {**_ID, "description": "That of the request; null where it has none."},
            "result": {"description": "What the method gives."},
            "error": {
                "type": "object",
                "description": "Why it was not done.",
                "required": ["code", "message", "data"],
                "properties": {
                    "code": {
                        "type": "integer",
                        "description": "-32700 to -32600 as the standard says; else -32000.",
                    },
                    "message": {"type": "string", "description": "One sentence."},
                    "data": {"$ref": "#/components/schemas/ErrorObject"},
                },
            },
        },
        "oneOf": [{"required": ["result"]}, {"required": ["error"]}],
    },
}
"""Shapes that only these have."""

OTHERS: dict[str, dict[str, Any]] = {
    "events": {
        "/v1/events": {
            "get": {
                "summary": "Watch the journal",
                "operationId": "events",
                "x-scope": "read",
                "description": "Server-sent events. `id:` is the journal's seq; `Last-Event-ID` resumes without loss.",
                "answer": ("text/event-stream", {"type": "string"}),
                "gives": "retry: 1000\nid: 41\n\n"
                'id: 42\nevent: run_completed\ndata: {"seq":42,"stream":"notes","kind":"run_completed"}\n\n',
                "query": {
                    "after": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Start after this seq; without, with what comes from now on.",
                    },
                    "session": {"type": "string", "description": "Only of this session."},
                    "run": {"type": "string", "description": "Only of this run."},
                    "kind": {
                        "type": "string",
                        "description": "Only these kinds, or first words of kinds, with commas between them.",
                    },
                    "payload": {
                        "type": "boolean",
                        "description": "Whether what the records say is sent, too, where it may be shown.",
                    },
                    "live": {
                        "type": "boolean",
                        "description": "Whether the pieces of an agent's answers are sent; needs `run`.",
                    },
                },
                "headers": {
                    "Last-Event-ID": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "The last seq that the client has; goes before `after`.",
                    }
                },
            }
        }
    },
    "rpc_http": {
        "/rpc": {
            "post": {
                "summary": "JSON-RPC 2.0",
                "operationId": "rpc",
                "x-scope": "read",
                "description": "A message or a batch; the scope is that of its method. Notifications alone: 204.",
                "body": {
                    "oneOf": [
                        _REQUEST,
                        {"type": "array", "items": _REQUEST, "minItems": 1, "maxItems": 1000},
                    ]
                },
                "example": {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "session.run",
                    "params": {"session_id": "notes", "code": "1 + 2"},
                },
                "answer": (
                    "application/json",
                    {"oneOf": [_ANSWER, {"type": "array", "items": _ANSWER, "minItems": 1}]},
                ),
                "gives": {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "result": {"status": "ok", "result": 3, "run_id": "run_17f0"},
                },
                "also": (204,),
            }
        }
    },
    "health": {
        "/healthz": {
            "get": {
                "summary": "Whether the server works",
                "operationId": "healthz",
                "description": "Anybody may ask; details are for those with a token.",
                "answer": (
                    "application/json",
                    {
                        "type": "object",
                        "required": ["status"],
                        "properties": {
                            "status": {"enum": ["ok", "degraded", "failing", "stopping"]},
                            "checks": {"type": "object"},
                        },
                    },
                ),
                "gives": {
                    "status": "ok",
                    "checks": {
                        "journal": {"status": "ok", "detail": "It can be written.", "ms": 0.048}
                    },
                },
            }
        }
    },
    "metrics": {
        "/metrics": {
            "get": {
                "summary": "Figures for Prometheus",
                "operationId": "metrics",
                "x-scope": "read",
                "answer": ("text/plain", {"type": "string"}),
                "gives": "# HELP holdfast_approvals_total Approvals that are decided.\n"
                "# TYPE holdfast_approvals_total counter\n"
                'holdfast_approvals_total{status="approved"} 1\n',
            }
        }
    },
}
"""Operations by the module that answers them, then by path and method."""
