package main

import "regexp"

// The tests that hold many hearts: what every call does, and what is promised
// under faults, which takes minutes.
var (
	everyCall   = [2]string{"./internal/test/fields", "."}
	canned      = [2]string{"./internal/test/canned", "."}
	reliability = [2]string{"./internal/test/reliability", "."}
)

// Tests of starts, of which some are near and others make faults.
var (
	starts = [2]string{".", "Cmd|KillOnCancel|StartErrors|StartCommandCosts|OneRequest|OutputOrder|OutputWhileRunning|ProcessesEnd|ExitCodes|" +
		"EnsureCommand|ServerRefuses|WriterFails|CommandIDCharacters|NoneSurvives|TwinsEnd|SignalTree|StdinConversation"}
	faults = [2]string{"./internal/test/reliability", "AtMostOnce|CommandIDs|KillOn|LateStart|CutBeforeTheCommand|Crossed|ExactlyOnceWaited|" +
		"RunOnce|ContextEndsWhile|ContextCauses|DeliveredTwice|EmptySuccesses|ErrorWithoutEnd|FailedWriter|ProgramKilled"}
	fileFaults = [2]string{"./internal/test/reliability", "LateJoin|LateUpload|DeliveredTwice|LateRequests|LostMkdir|FilesOfAnEnded|CleanUp|ProgramKilled"}
	hookFaults = [2]string{"./internal/test/reliability", "Resume|Hook|GetOrCreate|LostCreates|LateCreate|Replaced|Adopts|KilledAtEveryPoint|StaleResponses"}
)

func code(module, dir, files string, rows int, tests ...[2]string) heart {
	return heart{module: module, dir: dir, files: files, rows: rows, tests: tests}
}

// errors is code of which only conditions are chosen that lead to an error.
func (h heart) errors() heart {
	h.only = func(s site) bool { return s.guard(nil) }
	return h
}

// refusals is code of which only conditions are chosen that keep something out,
// in functions of these names.
func (h heart) refusals(functions string) heart {
	names := regexp.MustCompile("^(" + functions + ")$")
	h.only = func(s site) bool { return s.guard(names) }
	return h
}

var lists = map[string]*list{
	"guards": {name: "guards", seed: "2026-11-22", hearts: []heart{
		code(".", "internal/api", "*.go", 30, [2]string{"./internal/api", "."}, canned, everyCall, reliability),
		code(".", "internal/logstream", "*.go", 24, [2]string{"./internal/logstream", "."}, canned, reliability),
		code(".", "internal/untar", "untar.go", 14, [2]string{"./internal/untar", "."}),
		code(".", "proxy", "*.go", 20, [2]string{"./proxy", "."}),
		code(".", "auth", "*.go", 14, [2]string{"./auth", "."}),
		code(".", "sandboxtest", "door.go", 6, [2]string{"./sandboxtest", "Authorization|Teams|Token|Web|Warns|Control|Refus"}),
		code(".", ".", "runcommand.go output.go", 8, canned, starts, faults, reliability),
		code(".", "internal/engine", "*.go", 12, [2]string{"./internal/engine", "."}, canned, starts, faults, reliability),
		code(".", ".", "*resume.go", 8, [2]string{".", "Resume|Hook|CallsWait|SessionStopped|OnCreate|ObserverKinds|NilContext"}, hookFaults, reliability),
		code(".", ".", "stdin.go", 8, [2]string{".", "Stdin"}, [2]string{"./internal/test/reliability", "Stdin"}, reliability),
		code(".", ".", "filewriter.go", 8, [2]string{".", "Writer|Append|CreateStream|CreateNames|FileIsWhole|LateUpload|UserMakesDirectories|UserFiles"}, fileFaults, reliability),
		code(".", ".", "getorcreate.go", 8, [2]string{".", "OnCreate|GetOrCreate|Hook"}, hookFaults, reliability),
		code(".", ".", "cmdrun.go", 6, canned, starts, faults, reliability),
		code(".", ".", "download.go", 8, [2]string{".", "Download|Transfer|RoundTrip"}, reliability),
		code("cmd/sandbox", "internal/cli", "*.go", 14, [2]string{"./internal/cli", "."}, [2]string{".", "Scripts|EveryOption|Login|Stranger|Refused|Sources|NoTerminal|ExecInTerminal|Mistakes"}).errors(),
	}},
	// The first 36 rows are those of a review of security, the others were chosen.
	"security": {name: "security", seed: "2026-11-22", hearts: []heart{
		code(".", "internal/untar", "untar.go", 7, [2]string{"./internal/untar", "."}).refusals(".*"),
		code(".", "proxy", "*.go", 16, [2]string{"./proxy", "."}).refusals("check.*|public|permitted|allow.*|single|parse.*|lookAlike|admit|notPlain|find|isPublic|mayDial|doubtful|concerns|verify"),
		code(".", "sandboxtest", "door.go control.go interactive.go policy.go", 4,
			[2]string{"./sandboxtest", "Authorization|Teams|Token|Web|Warns|Control|Polic|Credentials|Shell|Terminal|Interactive|Fuzz|Refus"}).
			refusals("authorize.*|wrongTeam|inProject|knownHost|bearer|serveControl|check.*"),
		code(".", "internal/oidc", "*.go", 5, [2]string{"./internal/oidc", "."}, [2]string{"./internal/test/security", "."}).refusals("trusted|check.*|Issuers|readObject|Address|onThisMachine"),
		code(".", "internal/redact", "*.go", 3, [2]string{"./internal/redact", "."}, [2]string{"./internal/test/security", "."}, [2]string{"./internal/api", "."}).refusals("Printable|URL|shown|Struct|String|Text"),
		code(".", ".", "validate.go", 1,
			canned, [2]string{".", "FilePath|NamesThat|Trailing|CreateNames"}, [2]string{"./internal/test/security", "."}).refusals("absolutePath|isWithin"),
		code(".", "internal/wire", "limits.go", 1, canned, [2]string{".", "NamesThat"}, [2]string{"./internal/test/security", "."}).refusals("CheckText|CheckEnv"),
		code(".", "internal/shell", "dial.go", 1, [2]string{"./internal/shell", "."}, [2]string{"./terminal", "."}).refusals("fullAddress"),
		code(".", "internal/api", "transport.go", 2, [2]string{"./internal/api", "."}).refusals("redirectPolicy"),
		code(".", "sandboxtest/internal/firewall", "*.go", 9,
			[2]string{"./sandboxtest/internal/firewall", "."}, [2]string{"./sandboxtest", "Firewall|NPM|Polic|Credentials|GoClient"}).
			refusals("header|newNPMAuth|lookup|connect|send|serveHTTP|[aA]llows.*|parseQuestion|resolve|udpOut|openLocked|verdict|dial|readPackets"),
		code("cmd/sandbox", "mirror", "*.go", 2, [2]string{"./mirror", "."}, [2]string{".", "HostileSync"}).refusals("match|parseList|listedFile|unpack"),
		code("cmd/sandbox", "internal/cli", "login.go defaults.go", 4, [2]string{"./internal/cli", "."}, [2]string{".", "HostileSync|AskedForDefaults|Login|Scripts"}).refusals("newLogin|pageCommand|agreesTo|readDefaults"),
		code("cmd/sandbox", "internal/table", "*.go", 1, [2]string{".", "NothingRaw"}).refusals("printable"),
		code("durable", "session", "client.go handler.go", 3, [2]string{"./session", "SessionIDs|Token|Authorize|Refuse|Routes|Start|Metrics"}).refusals("checkID|read|allowed|Token|start"),
		code("durable", ".", "start.go", 1, [2]string{".", "Key|Refus|Start|Guard|Invalid|Once"}).refusals("start"),
	}},
	"edges": {name: "edges", seed: "2026-11-23", hearts: []heart{
		code(".", "agent", "*.go", 8, [2]string{"./agent", "."}),
		code(".", "pool", "*.go", 6, [2]string{"./pool", "."}),
		code(".", "tunnel", "*.go", 6, [2]string{"./tunnel", "."}),
		code(".", "outputs", "*.go", 3, [2]string{"./outputs", "."}),
		code("otelsandbox", ".", "*.go", 5, [2]string{".", "."}),
		code("durable", ".", "*.go", 4, [2]string{".", "Key|Refus|Start|Guard|Invalid|Once|Expir|Output|Follow|Sweep|Command|Sandbox|Options|Resume|Tail"}),
		code("cmd/sandbox", "internal/cli", "*.go", 8, [2]string{"./internal/cli", "."}, [2]string{".", "Scripts|EveryOption|Mistakes"}),
	}},
}
