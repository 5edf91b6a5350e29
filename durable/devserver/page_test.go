package devserver_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// browser starts a headless Chromium. It skips the test if there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		needs.Missing(t, "Chromium in PATH")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1100, 700),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		// Without this the kernel kills the browser when the thread that started it ends, as
		// threads of the emulator do.
		chromedp.ModifyCmdFunc(func(*exec.Cmd) {}),
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx)
		cancel()
	})
	ctx, cancel = context.WithTimeout(ctx, 15*time.Minute) // the machine may be busy
	t.Cleanup(cancel)
	return ctx
}

// TestPage uses the page as a person does: it runs a command, reloads the page in the
// middle of the output, kills the service, lets the session hibernate and wake, and
// destroys it. SANDBOX_SCREENSHOTS names a folder for pictures.
func TestPage(t *testing.T) {
	ctx := browser(t)
	_, config := startEmulator(t)
	config.IdleAfter = 9 * time.Second
	config.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(needs.Port(t))) // keep the port reserved while the service is down
	service, base := startService(t, config)

	run := func(actions ...chromedp.Action) {
		t.Helper()
		require.NoError(t, chromedp.Run(ctx, actions...))
	}
	text := func(selector string) (s string) {
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.querySelector("`+selector+`").innerText`, &s)) // the page may be loading
		return s
	}
	shows := func(selector, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(text(selector), want) }, testkit.Patience, 50*time.Millisecond, "%s shows %q", selector, want)
	}
	// ByQuery: without it, "#destroy" also finds the text of the style sheet, which never
	// becomes visible.
	click := func(selector string) { run(chromedp.Click(selector, chromedp.ByQuery)) }
	send := func(command string) { run(chromedp.SendKeys("#line", command+"\n", chromedp.ByQuery)) }
	picture := func(name string) {
		t.Helper()
		dir := os.Getenv("SANDBOX_SCREENSHOTS")
		if dir == "" {
			return
		}
		var png []byte
		run(chromedp.CaptureScreenshot(&png))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
	}

	run(chromedp.Navigate(base + "/"))
	shows("#state", "active")
	send(`printf '\033[32mgreen\033[0m and \033[1mbold\033[0m\n'; ls /nowhere; for i in $(seq 12); do echo "line $i of 12"; sleep 0.1; done`)
	shows("#log", "line 5 of 12")
	run(chromedp.Reload())
	shows("#log", "exit code 0")
	log := text("#log")
	assert.Equal(t, 1, strings.Count(log, "line 1 of 12"))
	for _, line := range []string{"green and bold", "line 6 of 12\nline 7 of 12\nline 8 of 12", "No such file"} {
		assert.Contains(t, log, line)
	}
	var green bool
	run(chromedp.Evaluate(`[...document.querySelectorAll("#log span")].some((s) => s.textContent === "green" && s.style.color)`, &green))
	assert.True(t, green, "colors are shown")
	shows("#when", "hibernates in 0:0")
	picture("session")

	// The address contains the session, so a browser without stored data finds it.
	run(chromedp.Evaluate(`localStorage.clear()`, nil), chromedp.Reload())
	shows("#log", "exit code 0")
	assert.Contains(t, text("#log"), "green and bold")

	// A build shows a progress bar while two commands wait.
	send(`for i in $(seq 40); do printf '\r\033[38;5;208m%3d%%\033[0m [%-40s]' $((i * 5 / 2)) "$(printf '%*s' $i | tr ' ' '#')"; sleep 0.1; done; printf '\r\033[K\033[48;2;0;90;60m built \033[0m in \033[1m4 s\033[0m\n'`)
	send("echo the second")
	send("echo the third")
	shows("#log", "[####")
	shows("#log .queued + .queued", "echo the third")
	picture("progress")
	shows("#log .cmd:last-of-type", "exit code 0")
	log = text("#log")
	assert.Contains(t, log, "built  in 4 s\n")
	assert.NotContains(t, log, "[####", "the progress bar was overwritten")
	var back string
	run(chromedp.Evaluate(`[...document.querySelectorAll("#log span")].find((s) => s.textContent === " built ").style.backgroundColor`, &back))
	assert.Equal(t, "rgb(0, 90, 60)", back)

	// The service is killed and started again.
	send(`printf 'pi\303'; sleep 0.3; printf '\251ces \033['; sleep 0.3; printf '31mred\033[0m\n'; for i in $(seq 20); do echo "again $i of 20"; sleep 0.1; done; exit 4`)
	shows("#log", "again 3 of 20")
	require.NoError(t, service.Process.Kill())
	_ = service.Wait()
	shows("#when", "reconnecting")
	_, _ = startService(t, config)
	shows("#log", "exit code 4")
	log = text("#log")
	assert.Contains(t, log, "piéces red\n", "characters and colors that arrived in pieces")
	for i := range 20 {
		assert.Equal(t, 1, strings.Count(log, fmt.Sprintf("again %d of 20\n", i+1)))
	}

	send("exit 3")
	shows("#log", "exit code 3")
	shows("#when", "hibernates in 0:0")
	shows("#state", "hibernated")
	run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	picture("hibernated-dark")

	// Show the page on a phone. The page remembers the commands.
	run(chromedp.EmulateViewport(390, 800, chromedp.EmulateMobile))
	run(chromedp.SendKeys("#line", kb.ArrowUp, chromedp.ByQuery))
	var line string
	run(chromedp.Value("#line", &line, chromedp.ByQuery))
	assert.Equal(t, "exit 3", line)
	run(chromedp.Evaluate(`document.querySelector("#line").value = ""`, nil))
	send("sleep 1000")
	shows("#state", "active")
	shows("#when", "running")
	var wide bool
	run(chromedp.Evaluate(`document.documentElement.scrollWidth > window.innerWidth`, &wide))
	assert.False(t, wide, "the page is no wider than the phone")
	inSight := func() {
		t.Helper()
		var below float64
		var page string
		if !assert.Eventually(t, func() bool {
			run(chromedp.Evaluate(`((log) => log.scrollHeight - log.scrollTop - log.clientHeight)(document.querySelector("#log"))`, &below))
			return below < 2
		}, time.Minute, 50*time.Millisecond) {
			run(chromedp.Evaluate(`JSON.stringify([$("log").scrollHeight, $("log").scrollTop, $("log").clientHeight, atEnd, lastTop, lastSize, innerWidth, innerHeight])`, &page))
			picture("hidden")
			require.Fail(t, "the end of the log is not in sight", "%v %s", below, page)
		}
	}
	inSight()
	picture("phone")
	for i := range 10 { // rotate the phone
		run(chromedp.EmulateViewport(390+410*int64(i%2), 800-410*int64(i%2), chromedp.EmulateMobile))
		inSight()
	}
	click("#int")
	shows("#log", "killed")

	// Start a second session. The first must not change.
	click("#new")
	require.Eventually(t, func() bool { return !strings.Contains(text("#log"), "killed") }, time.Minute, 50*time.Millisecond)
	shows("#state", "active")
	send("echo in the second")
	shows("#log", "exit code 0")
	run(chromedp.Evaluate(`((list) => { list.selectedIndex = 1; list.onchange() })(document.querySelector("#list"))`, nil))
	shows("#log", "killed")
	assert.NotContains(t, text("#log"), "in the second")

	run(chromedp.Evaluate(`window.confirm = () => true`, nil))
	click("#destroy")
	shows("#state", "destroyed")
	var disabled bool
	run(chromedp.Evaluate(`document.querySelector("#line").disabled`, &disabled))
	assert.True(t, disabled)
	// A destroyed session is forgotten: a new visit shows the other one. Once that is
	// destroyed too, the next visit starts a new session.
	run(chromedp.Reload())
	shows("#log", "in the second")
	run(chromedp.Evaluate(`window.confirm = () => true`, nil))
	click("#destroy")
	shows("#state", "destroyed")
	run(chromedp.Reload())
	shows("#state", "active")
	assert.NotContains(t, text("#log"), "in the second")
}
