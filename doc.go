// Package sandbox is a client for Vercel Sandbox: named, persistent Linux
// microVMs in which to run untrusted code, agents, builds and servers.
//
//	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Runtime: "node24"})
//	if err != nil {
//		return err
//	}
//	defer sb.Close()
//	done, err := sb.RunCommand(ctx, "node", []string{"-e", "console.log('hello')"}, &sandbox.CommandOptions{
//		Stdout: os.Stdout, Stderr: os.Stderr,
//	})
//	if err != nil {
//		return err
//	}
//	fmt.Println("exit code", done.ExitCode)
//
// # Objects
//
// A [Sandbox] has a name and, unless told otherwise, files that outlive its
// virtual machine. A [Session] is one run of that machine; a stopped sandbox
// has none that runs, and the next call on it starts one. A [Snapshot] is a
// saved state of the files. A [Command] is a process in a session.
//
// # Credentials
//
// [auth.Default] finds credentials where the official tools do, in this order: an access token with its team and project in the environment
// (VERCEL_TOKEN, VERCEL_TEAM_ID, VERCEL_PROJECT_ID); the OIDC token of the
// request that is being served; the OIDC token in VERCEL_OIDC_TOKEN, refreshed
// before it expires. [ClientOptions] takes any other [auth.Provider].
// Every request asks the provider, so that a handle can live for weeks.
//
// # What is repeated, and what is not
//
// Requests that fail are repeated twice, after about 400 and 800 ms, when that
// can't do anything twice:
//
//	operation                                         connection error  429   5xx
//	get, list, update, delete, stop, kill,            repeated          rep.  repeated
//	network policy, logs, files, mkdir, interactive
//	run and start command, snapshot, extend timeout,  only if nothing   rep.  not repeated
//	create and fork                                   was sent
//
// A Retry-After of up to 20 seconds is waited for; a longer one is returned at
// once, in [APIError]. When an operation of the second group may have acted but
// its answer is lost, the error matches [ErrOutcomeUnknown]. A create with a
// name can then be settled by [GetOrCreate].
//
// A command's output survives cut connections, such as those that the
// platform's edge cuts after five minutes: each byte is delivered once and the
// exit code is the process's own; see [ReattachOptions].
//
// # Resuming
//
// Calls on a [Sandbox] that find it stopped, stopping or being snapshotted wait
// for that to be over, start a new session and are then made again, once. Any
// number of goroutines share one resume. [CreateOptions] and [GetOptions] take
// a hook, OnResume, to start what does not outlive a session.
//
// # Contexts
//
// Every call takes a context and returns as soon as it ends. That never ends
// the remote process by itself: kill it, or set KillOnCancel in
// [CommandOptions].
//
// # Errors
//
// An answer that is no success is an [*APIError], no answer at all a
// [*RequestError], an output stream that could not be repaired a
// [*StreamError]. Arguments that no server could accept are refused before any
// request with an error that matches [ErrInvalid]. The package's Err values
// match with [errors.Is]. A missing file is an [*fs.PathError] over
// [fs.ErrNotExist].
//
// No error, log record or formatted value holds a token, the value of an
// environment variable, a password or the value of a header rule.
//
// # Concurrency and cleanup
//
// [Client], [Sandbox], [Session], [Command], [Snapshot] and [FileSystem] are
// safe for concurrent use. No goroutine outlives the call that started it, save
// those that copy the output of [Sandbox.StartCommand] and of a started [Cmd],
// and those of a [Shell], which end with their context. A sandbox that is not
// stopped runs until it times out: defer [Sandbox.Close].
//
// # Testing
//
// Package sandboxtest is a local implementation of the API that runs real
// processes, for tests of programs that use this package, without network or
// account.
package sandbox
