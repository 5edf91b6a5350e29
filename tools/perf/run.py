#!/usr/bin/env python3
"""Measures client implementations against the stub server. See README.md."""
import argparse
import fnmatch
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.environ.get("PERF_HOME") or os.path.join(tempfile.gettempdir(), "sandbox-perf")
MIB = 1 << 20

# Case name -> arguments, passed to the implementation as key=value.
CASES = {
    "startup": {},
    "rtt-seq": {"ops": 2000},
    "rtt-conc": {"ops": 20000, "workers": 64},
    "logs-ascii": {"bytes": 256 * MIB, "line": 4096, "mode": "ascii"},
    "logs-small": {"bytes": 40_000_000, "line": 40, "mode": "ascii"},
    "logs-escapes": {"bytes": 64 * MIB, "line": 1024, "mode": "escapes"},
    "logs-perline": {"bytes": 64 * MIB, "line": 4096, "mode": "ascii", "chunk": 0},
    "logs-detached": {"bytes": 64 * MIB, "line": 4096, "mode": "ascii"},
    "logs-slow": {"bytes": 1024 * MIB, "line": 4096, "mode": "ascii", "read": 64 * MIB},
    "upload-big": {"file": "semi.bin", "bytes": 256 * MIB},
    "upload-file": {"file": "semi.bin", "bytes": 256 * MIB},
    "upload-many": {"file": "semi.bin", "files": 5000, "size": 4096},
    "upload-incompressible": {"file": "rand.bin", "bytes": 128 * MIB},
    "download-stream": {"bytes": 1024 * MIB},
    "download-file": {"bytes": 1024 * MIB},
    "list": {"total": 100_000, "limit": 50},
    "memory": {"bytes": 1024 * MIB, "line": 4096, "mode": "ascii"},
    "scale": {"sandboxes": 5000, "lines": 60, "pause": 1000},
}
BARE_MB = 9  # the memory of a process with a single sandbox
STARTUPS = 5  # the number of processes per repetition of "startup"

# The targets of a case: how many times faster than version 2 of the JavaScript SDK it must be
# at least, and how many times the CPU time of the floor it may take at most.
ASKED = {
    "startup": (20, 1.4), "rtt-seq": (5, 1.4), "rtt-conc": (8, 1.4),
    "logs-ascii": (10, 1), "logs-small": (12, 1), "logs-escapes": (3, 1),
    "logs-perline": (4, 1), "logs-detached": (6, 1), "memory": (None, 1),
    "upload-big": (5, None), "upload-file": (5, None), "upload-incompressible": (9, None), "upload-many": (4, None),
    "download-stream": (None, 1), "download-file": (2, 1), "list": (2.5, 1.2),
}
JS = "env PERF_JS_SDK={0}/{1}/node_modules/@vercel/sandbox node {2}/js/bench.mjs"
# The implementations: name, patterns of cases, command.
DEFAULTS = [
    ("floor-json", "*", f"{HOME}/bin/floor"),
    ("go", "*", f"{HOME}/bin/bench"),
    ("js2", "*,!scale", JS.format(HOME, "npm2", HERE)),
    ("js3", "*,!scale", JS.format(HOME, "npm3", HERE)),
]


def build():
    """Builds the programs, installs the JavaScript SDKs and generates the upload inputs, all below HOME."""
    run = lambda *cmd, cwd=HERE: subprocess.run(cmd, cwd=cwd, check=True)
    for sub in ("bin", "data", "tmp"):
        os.makedirs(f"{HOME}/{sub}", exist_ok=True)
    run("go", "build", "-o", f"{HOME}/bin/", "./bench", "./floor", "./stub")
    for name, release in (("npm2", "2.9.2"), ("npm3", "3.5.0")):
        if not os.path.isdir(f"{HOME}/{name}/node_modules/@vercel/sandbox"):
            os.makedirs(f"{HOME}/{name}", exist_ok=True)
            run("npm", "init", "-y", cwd=f"{HOME}/{name}")
            run("npm", "install", "--silent", "--no-audit", "--no-fund", f"@vercel/sandbox@{release}", cwd=f"{HOME}/{name}")
    run(f"{HOME}/bin/stub", "-gen-data", f"{HOME}/data")


def scaled(args, quick):
    """Returns the arguments, with sizes divided by 16 if quick is set."""
    if not quick:
        return dict(args)
    big = {"bytes", "read", "ops", "files", "total", "sandboxes", "lines"}
    return {k: max(1, v // 16) if k in big else v for k, v in args.items()}


class Stub:
    def __init__(self, tls, verify):
        cmd = [f"{HOME}/bin/stub"]
        self.ca = ""
        if tls:
            self.ca = f"{HOME}/stub-ca.pem"
            cmd += ["-tls", "-cert-out", self.ca]
            if tls == "h1":
                cmd.append("-no-h2")
        if verify:
            cmd.append("-verify")
        self.proc = subprocess.Popen(cmd, stdout=subprocess.PIPE, text=True)
        self.url = self.proc.stdout.readline().strip()
        if not self.url:
            sys.exit("the stub did not start: check that the build succeeded")
        self.ctx = None
        if self.ca:
            import ssl

            self.ctx = ssl.create_default_context(cafile=self.ca)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, context=self.ctx) as r:
            return r.read()

    def stats(self):
        return json.loads(self.get("/__stats"))

    def close(self):
        self.proc.terminate()
        self.proc.wait()


# Variables that would change a measurement. NODE_EXTRA_CA_CERTS, for example, makes the start of
# Node.js 50 ms slower. To measure with a variable, put it into the command: 'go=env GOGC=400 BENCH'.
STRIPPED = re.compile(r"(?i)^(NODE_\w+|UV_\w+|GO(GC|DEBUG|MAXPROCS|MEMLIMIT|TRACEBACK)|SSL_CERT_\w+|\w+_PROXY|VERCEL_\w+|DEBUG_FETCH|PERF_\w+)$")


def run_once(impl, command, case, args, stub, timeout, env_extra):
    env = {k: v for k, v in os.environ.items() if not STRIPPED.match(k)}
    env.update(PERF_STUB=stub.url, PERF_DATA=f"{HOME}/data", PERF_TMP=f"{HOME}/tmp", **env_extra)
    if stub.ca:
        env.update(PERF_CA=stub.ca, NODE_EXTRA_CA_CERTS=stub.ca)
    argv = shlex.split(command) + [case] + [f"{k}={v}" for k, v in args.items()]
    stub.get("/__reset")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        t0 = time.perf_counter()
        p = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        late = threading.Event()
        timer = threading.Timer(timeout, lambda: (late.set(), p.kill()))
        timer.start()
        _, status, ru = os.wait4(p.pid, 0)
        wall = time.perf_counter() - t0
        timer.cancel()
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text = out.read().decode(errors="replace")
        complaint = err.read().decode(errors="replace")
    rec = {}
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            rec = json.loads(line)
            break
    server = stub.stats()
    rec.setdefault("extra", {})
    if not rec.get("case"):
        rec["case"] = case
        what = f"killed after {timeout} s" if late.is_set() else f"exit {p.returncode}"
        tail = " | ".join(complaint.strip().splitlines()[-3:])
        m = re.search(r"FATAL ERROR.*", complaint)
        rec["error"] = f"{what}: {m.group(0) if m else tail}"[:300]
        rec.update(seconds=wall, cpu_seconds=ru.ru_utime + ru.ru_stime, peak_rss_mb=ru.ru_maxrss / 1024)
    if case == "startup":
        # Count the whole process, from start to exit.
        rec["extra"]["inside_seconds"] = rec.get("seconds")
        rec.update(seconds=wall, cpu_seconds=ru.ru_utime + ru.ru_stime)
    for u in server.get("uploads") or []:
        if "start_unix_ns" in rec["extra"]:
            u["first_byte_after_s"] = (u["first_byte_unix_ns"] - rec["extra"]["start_unix_ns"]) / 1e9
    rec.update(
        impl=impl, args=args, rc=p.returncode, process_wall=wall,
        process_cpu=ru.ru_utime + ru.ru_stime, process_maxrss_mb=ru.ru_maxrss / 1024,
        server=server, loadavg=os.getloadavg()[0], stderr=complaint[-2000:],
    )
    return rec


def verify_uploads(impls, quick, timeout):
    """Checks the content of all uploads of each implementation. It measures nothing."""
    ok = True
    stub = Stub("", True)
    try:
        for case in [c for c in CASES if c.startswith("upload-")]:
            args = scaled(CASES[case], quick)
            data = open(f"{HOME}/data/{args['file']}", "rb").read()
            size = args.get("size", args.get("bytes"))
            count = args.get("files", 1)
            want = {
                "files": count, "bytes": size * count,
                "crc32_sum": sum(zlib.crc32(data[i * size:(i + 1) * size]) for i in range(count)) % (1 << 32),
            }
            for name, pats, command in impls:
                if not wanted(case, pats):
                    continue
                rec = run_once(name, command, case, args, stub, timeout, {})
                ups = rec["server"].get("uploads") or [{}]
                got = ups[0].get("verified") or {}
                good = len(ups) == 1 and all(got.get(k) == v for k, v in want.items())
                good = good and got["first_name"].startswith("vercel/sandbox/") and ups[0]["x_cwd"] == "/"
                ok = ok and good
                print(f"{case:24}{name:14}{'ok' if good else 'WRONG'} {json.dumps(got)} {rec.get('error', '')}")
    finally:
        stub.close()
    return ok


def wanted(case, pats):
    """Reports whether a pattern matches the case, and no pattern that begins with ! does."""
    pats = pats.split(",")
    return (any(fnmatch.fnmatch(case, p) for p in pats if not p.startswith("!"))
            and not any(fnmatch.fnmatch(case, p[1:]) for p in pats if p.startswith("!")))


def fmt(x):
    if x is None:
        return "-"
    return f"{x:.4f}" if x < 0.1 else f"{x:.3f}" if x < 10 else f"{x:.1f}"


def ratio(a, b):
    if not a or not b:
        return "-"
    r = a / b
    return f"{r:.0f}x" if r >= 100 else f"{r:.1f}x" if r >= 10 else f"{r:.2f}x"


def notes(recs):
    """Returns figures other than time and memory, as medians."""
    def med(get):
        v = [x for x in (get(r) for r in recs) if x is not None]
        return statistics.median(v) if v else None

    out = []
    work = next((r["work"] for r in recs if r.get("work")), None)
    errors = {r["error"] for r in recs if r.get("error")}
    if errors:
        got = med(lambda r: r["extra"].get("bytes_received"))
        out.append(f"FAILED {sum(1 for r in recs if r.get('error'))}/{len(recs)}: " + "; ".join(sorted(errors))
                   + (f" after {got / MIB:.0f} MiB" if got else ""))
    p50 = med(lambda r: r["extra"].get("p50_us"))
    if p50:
        n = work["n"]
        out.append(f"p50 {p50:.0f} us, p99 {med(lambda r: r['extra'].get('p99_us')):.0f} us, "
                   f"{med(lambda r: r['extra'].get('ops_per_s')):.0f} ops/s, "
                   f"{med(lambda r: r['cpu_seconds']) / n * 1e6:.0f} us CPU/op")
    elif work and work["unit"] == "bytes" and not errors:
        out.append(f"{work['n'] / MIB / med(lambda r: r['seconds']):.0f} MiB/s")
    if recs[0]["case"].startswith("rtt") or recs[0]["case"] in ("list", "scale"):
        out.append(f"{med(lambda r: r['server']['connections_total']):.0f} connections")
    if any(r["server"].get("http2_requests") for r in recs):
        out.append("HTTP/2")
    for key in ("goroutines", "descriptors", "heap_mb", "stack_mb"):
        v = med(lambda r: r["extra"].get(key))
        if v is not None:
            out.append(f"{v:.0f} {key.replace('_', ' ')}")
    ups = [u for r in recs for u in (r["server"].get("uploads") or [])]
    if ups:
        sent = statistics.median(u["wire_bytes"] for u in ups) / MIB
        how = "chunked" if ups[0]["content_length"] < 0 else "length known"
        out.append(f"sent {sent:.1f} MiB ({how})")
        first = [u["first_byte_after_s"] for u in ups if "first_byte_after_s" in u]
        if first:
            out.append(f"first byte after {fmt(statistics.median(first))} s")
    bad = {r["extra"]["mismatch"] for r in recs if r["extra"].get("mismatch")}
    if bad:
        out.append(f"WRONG OUTPUT in {sum(1 for r in recs if r['extra'].get('mismatch'))}/{len(recs)}: {sorted(bad)[0]}")
    rep = med(lambda r: r["extra"].get("replacement_chars"))
    if rep:
        out.append(f"{rep:.0f} U+FFFD")
    return ", ".join(out)


def table(records, baselines):
    by = by_case(records)
    head = ["case", "implementation", "n", "seconds (min-max)", "CPU s", "peak RSS MB"]
    for b in baselines:
        head += [f"s / {b}", f"CPU / {b}"]
    head += ["server CPU s", "notes"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    order = [c for c in CASES if c in by] + [c for c in by if c not in CASES]
    for case in order:
        def med(impl, key):
            recs = by[case].get(impl)
            return statistics.median(r[key] for r in recs) if recs else None

        known = [d[0] for d in DEFAULTS]
        for impl, recs in sorted(by[case].items(), key=lambda i: known.index(i[0]) if i[0] in known else len(known)):
            s = [r["seconds"] for r in recs]
            row = [case, impl, str(len(recs)), f"{fmt(statistics.median(s))} ({fmt(min(s))}-{fmt(max(s))})",
                   fmt(med(impl, "cpu_seconds")), f"{med(impl, 'peak_rss_mb'):.0f}"]
            for b in baselines:
                row += [ratio(med(impl, k), med(b, k)) for k in ("seconds", "cpu_seconds")]
            row += [fmt(statistics.median(r["server"]["server_cpu_seconds"] for r in recs)), notes(recs)]
            print("| " + " | ".join(row) + " |")


def by_case(records):
    by = {}
    for r in records:
        by.setdefault(r["case"], {}).setdefault(r["impl"], []).append(r)
    return by


def median(recs, key):
    return statistics.median(r[key] for r in recs) if recs else None


def seconds(x):
    return "-" if x is None else f"{x * 1000:.1f} ms" if x < 1 else f"{x:.2f} s"


def times(a, b):
    r = a / b if a and b else None
    return "-" if r is None else f"{r:.0f}" if r >= 10 else f"{r:.2f}"


def summary(records):
    """Prints the tables of docs/maintainers/performance.md, which compare the SDK with JavaScript, the floor and the targets."""
    by = by_case(r for r in records if r["case"] != "scale")
    head = ["case", "runs", "Go", "JS", "JS / Go: time, CPU", "asked (time)", "Go / floor: time, CPU", "asked (CPU)", "peak MB: Go, JS"]
    if by:
        print("| " + " | ".join(head) + " |\n" + "|" + "---|" * len(head))
    for case in [c for c in CASES if c in by]:
        impls = by[case]
        go, js = impls.get("go"), impls.get("js2")
        asked, limit = ASKED.get(case, (None, None))
        base = impls.get("floor-json")
        failed = js and any(r.get("error") for r in js)
        if not go:
            continue
        g = [median(go, k) for k in ("seconds", "cpu_seconds")]
        j = [None if failed else median(js, k) for k in ("seconds", "cpu_seconds")]
        f = [median(base, k) for k in ("seconds", "cpu_seconds")]
        wrong = any(r.get("error") or r["extra"].get("mismatch") for r in go)
        print("| " + " | ".join([
            case, str(len(go)), seconds(g[0]) + (" WRONG" if wrong else ""), "fails" if failed else seconds(j[0]),
            f"{times(j[0], g[0])}, {times(j[1], g[1])}" if j[0] else "",
            f"≥ {asked}" + (" MISSED" if j[0] and j[0] / g[0] < asked else "") if asked else "",
            f"{times(g[0], f[0])}, {times(g[1], f[1])}" if base else "",
            f"≤ {limit}" + (" MISSED" if base and g[1] / f[1] > limit else "") if limit else "",
            f"{median(go, 'peak_rss_mb'):.0f}, " + (f"{median(js, 'peak_rss_mb'):.0f}" if j[0] else "-"),
        ]) + " |")
    scale = [r for r in records if r["case"] == "scale"]
    if scale:
        head = ["", "sandboxes", "peak MB", "KB each", "goroutines each", "descriptors", "CPU in all", "CPU each"]
        print("\n| " + " | ".join(head) + " |\n" + "|" + "---|" * len(head))
    for r in scale:
        n, x = r["work"]["n"], r["extra"]
        minute = float(r["args"]["lines"]) * float(r["args"]["pause"]) / 1000
        print(f"| {r['impl']}, {'HTTP/2' if r['server'].get('http2_requests') else 'HTTP/1.1'} | {n} | {r['peak_rss_mb']:.0f} "
              f"| {(r['peak_rss_mb'] - BARE_MB) * 1024 / n:.0f} | {x.get('goroutines', 0) / n:.2f} | {x.get('descriptors', 0)} "
              f"| {r['cpu_seconds']:.1f} s | {r['cpu_seconds'] / n / minute * 1e6:.0f} µs a second |")
    loads = [r["loadavg"] for r in records]
    print(f"\nLoad while this was measured: {min(loads):.1f} to {max(loads):.1f}, median {statistics.median(loads):.1f}; {os.cpu_count()} processors; "
          + "; ".join(version(c) for c in (["go", "version"], ["node", "--version"], ["uname", "-sr"])))


def version(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"no {command[0]}"


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--impl", action="append", default=[], metavar="NAME[@CASES]=COMMAND",
                    help="add an implementation (CASES: comma-separated patterns)")
    ap.add_argument("--only", help="comma-separated names of implementations to run; default all")
    ap.add_argument("--cases", default="*", help="comma-separated names or patterns")
    ap.add_argument("-n", type=int, default=3, help="repetitions (default 3)")
    ap.add_argument("--baseline", default="floor-json", help="comma-separated names of implementations with which to compare the others")
    ap.add_argument("--out", help="append every record to this file (JSON lines)")
    ap.add_argument("--report", nargs="+", metavar="FILE", help="only print the table of recorded files")
    ap.add_argument("--summary", action="store_true", help="print the tables of docs/maintainers/performance.md instead")
    ap.add_argument("--quick", action="store_true", help="a sixteenth of the work")
    ap.add_argument("--verify", action="store_true", help="check the content of every upload instead of measuring")
    ap.add_argument("--tls", nargs="?", const="h2", choices=["h1", "h2"], help="serve TLS; h1 turns HTTP/2 off")
    ap.add_argument("--timeout", type=float, default=150, help="seconds until a run is killed")
    ap.add_argument("--arg", action="append", default=[], metavar="KEY=VALUE", help="set an argument of all cases")
    ap.add_argument("--must", default="go", help="exit 1 if a run of one of these fails or its output is wrong (default go)")
    ap.add_argument("--list", action="store_true", help="list cases and implementations")
    opt = ap.parse_args()
    baselines = opt.baseline.split(",") if opt.baseline else []

    if opt.report:
        records = [json.loads(l) for f in opt.report for l in open(f)]
        summary(records) if opt.summary else table(records, baselines)
        return
    impls = list(DEFAULTS)
    for spec in opt.impl:
        name, _, command = spec.partition("=")
        name, _, pats = name.partition("@")
        impls.append((name, pats or "*", command))
    if opt.only:
        keep = opt.only.split(",")
        missing = set(keep) - {i[0] for i in impls}
        if missing:
            sys.exit(f"no implementation named {', '.join(sorted(missing))}")
        impls = [i for i in impls if i[0] in keep]
    cases = [c for c in CASES if wanted(c, opt.cases)]
    if opt.list:
        for c in CASES:
            print(c, *[f"{k}={v}" for k, v in CASES[c].items()])
        for name, pats, command in impls:
            print(f"{name}@{pats}={command}")
        return
    build()
    if opt.verify:
        sys.exit(0 if verify_uploads(impls, opt.quick, opt.timeout) else 1)

    records = []
    stub = Stub(opt.tls or "", False)
    env = {"PERF_H2": "1"} if opt.tls == "h2" else {}
    try:
        for case in cases:
            args = scaled(CASES[case], opt.quick) | dict(a.split("=", 1) for a in opt.arg)
            here = [i for i in impls if wanted(case, i[1])]
            for rep in range(opt.n):
                for k in range(STARTUPS if case == "startup" else 1):
                    first = (rep + k) % len(here)  # so that no implementation always runs after the slowest one
                    for name, _, command in here[first:] + here[:first]:
                        rec = run_once(name, command, case, args, stub, opt.timeout, env)
                        rec["rep"] = rep
                        records.append(rec)
                        if opt.out:
                            with open(opt.out, "a") as f:
                                f.write(json.dumps(rec) + "\n")
                        if k == 0:
                            print(f"{case} {rep + 1}/{opt.n} {name}: {fmt(rec['seconds'])} s, CPU {fmt(rec['cpu_seconds'])} s, "
                                  f"{rec['peak_rss_mb']:.0f} MB {rec.get('error', '')}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        stub.close()
    summary(records) if opt.summary else table(records, baselines)
    must = opt.must.split(",")
    if any(r["impl"] in must and (r.get("error") or r["extra"].get("mismatch")) for r in records):
        sys.exit(1)


if __name__ == "__main__":
    main()
