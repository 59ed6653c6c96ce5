"""What makes something readable of bytes: text, rows, pages, pictures. Plain code, run in a thread."""
