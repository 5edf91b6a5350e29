// Package sandbox is a client for Vercel Sandbox: named, persistent Linux
// microVMs in which to run untrusted code, agents, builds and servers.
//
//	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Image: "vercel/sandbox/node:24"})
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
// # Types
//
// The ten types that you meet first, in the order in which you meet them:
//
//   - [Sandbox]: a named virtual machine. Its files outlive the machine unless it
//     is ephemeral; the next call starts a stopped one.
//   - [CreateOptions]: the settings of a new sandbox, for [Create] and [GetOrCreate];
//     [ForkOptions] are for [Fork].
//   - [CommandResult]: the exit code and output of a program that
//     [Sandbox.RunCommand] ran to its end.
//   - [Command]: a program that runs, from [Sandbox.StartCommand]: its log, its
//     input, signals, Wait.
//   - [Cmd]: a program with the methods of exec.Cmd, from
//     [Sandbox.CommandContext].
//   - [FileSystem]: the files, with the methods of package os, from [Sandbox.FS].
//   - [NetworkPolicy]: what a sandbox can reach.
//   - [Session]: one run of the machine; its methods never start another.
//   - [Snapshot]: a saved state of the files, to start or roll back from.
//   - [Client]: the API with your credentials and settings. The package's
//     functions use [DefaultClient].
//
// # Credentials
//
// [auth.Default] looks for credentials where the official tools do, in this order: an
// access token in the environment (VERCEL_AUTH_TOKEN, or VERCEL_TOKEN with VERCEL_TEAM_ID
// and VERCEL_PROJECT_ID); the OIDC token of the request that is being served; the OIDC
// token in the file that VERCEL_OIDC_TOKEN_FILE names, or in VERCEL_OIDC_TOKEN, refreshed
// before it expires; VERCEL_TOKEN with the linked project. [auth.Token] takes an access
// token and finds its project; [ClientOptions] takes any other [auth.Provider]. Every
// request asks the provider, so a handle can live for weeks.
//
// # Retries
//
// Failed requests are retried up to twice, after about 400 and 800 ms, if that
// is safe:
//
//	operation                                      connection error     429      5xx
//	get, list, update, stop, logs, files,          retried              retried  retried
//	network policy
//	run and start command, snapshot,               only if nothing      retried  not retried
//	extend timeout, create and fork                was sent
//	delete of a sandbox, signals, mkdir            as above, then checked by a lookup
//
// A Retry-After of up to 20 seconds is honored; a longer one is returned at once, in
// [APIError]. If a response with status 429 reports when the rate limit is reset, the
// client waits for the reset, for two minutes at most; see
// [ClientOptions].MaxRateLimitWait. A command carries an ID, so that one whose response
// was lost is found instead of being started again. Where the outcome can't be known, the
// error matches [ErrOutcomeUnknown].
//
// A command's output survives cut connections, such as those that the platform's edge cuts
// after five minutes: each byte is delivered once, and the exit code is the process's own;
// see [ReattachOptions]. Bytes that are not UTF-8 arrive as U+FFFD, because the API
// carries text, unless [CommandOptions.Binary] is set.
//
// # Resuming
//
// If a call on a [Sandbox] finds it stopped, stopping or being snapshotted, the call waits
// until the old session has ended, starts a new one, which is billed, and repeats its
// request. Concurrent callers share one resume. [CreateOptions] and [GetOptions] take a
// hook, OnResume, to start programs that do not outlive a session.
//
// # Contexts
//
// Every call takes a context and returns when it ends; methods that take longer
// say so. Unless documented otherwise, a method that takes a context makes one
// request, and an iterator one for each page. The end of a context does not end
// the remote process: kill it, or set KillOnCancel in [CommandOptions].
//
// # Errors
//
// Methods return an [*APIError] for an unsuccessful response, a [*RequestError]
// when no response was received, and a [*StreamError] when an output stream could
// not be resumed. Arguments that no server could accept are refused before any
// request, with an error that matches [ErrInvalid]. The package's Err values match
// with [errors.Is]. Missing files are reported as an [*fs.PathError] that wraps
// [fs.ErrNotExist].
//
// No error, log record or formatted value holds a token, the value of an
// environment variable, a password or the value of a header rule.
//
// # Concurrency and cleanup
//
// [Client] and the handles, [Sandbox], [Session], [Command], [User], [FileSystem],
// [Snapshot] and [Drive], are safe for concurrent use. Only a few goroutines outlive the
// call that started them: those of a command with writers or KillOnCancel, of a started
// [Cmd], of the writers that [Command.Stdin] and [FileSystem.Create] return, of
// [Command.Done], and of [FileSystem.Open], which requests the size of the file. Each ends
// with the object that it serves, and with the context of that object. A sandbox that is
// not stopped runs until it times out: defer [Sandbox.Close].
//
// # Testing
//
// Package sandboxtest is a local implementation of the API that runs real
// processes, for tests of programs that use this package, without network or
// account.
package sandbox
