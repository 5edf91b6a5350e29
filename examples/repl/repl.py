"""A Python that keeps its variables: a line of JSON with a program comes in, a line with what it printed goes out."""
import code, contextlib, io, json, sys

interpreter = code.InteractiveInterpreter()
for line in sys.stdin:
    program, printed = json.loads(line), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        interpreter.runsource(program, symbol="exec" if "\n" in program else "single")
    print(json.dumps(printed.getvalue()), flush=True)
