"""An MCP server of one tool, which runs Python: newline-delimited JSON-RPC on standard input and output."""
import contextlib, io, json, sys

TOOL = {"name": "python", "description": "Run Python. Variables stay from call to call.",
        "inputSchema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}
names = {}

def call(params):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(params["arguments"]["code"], names)
        return {"content": [{"type": "text", "text": out.getvalue()}]}
    except Exception as error:
        return {"content": [{"type": "text", "text": repr(error)}], "isError": True}

METHODS = {
    "initialize": lambda p: {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}},
                             "serverInfo": {"name": "python", "version": "1"}},
    "ping": lambda p: {},
    "tools/list": lambda p: {"tools": [TOOL]},
    "tools/call": call,
}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue  # a notification
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if method := METHODS.get(request["method"]):
        answer["result"] = method(request.get("params", {}))
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
