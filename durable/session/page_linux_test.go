package session

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
)

// person is a script that types two commands and half of a third, and reloads the page when
// the service says so. Then it reports the text of the line.
const person = `<script>
(async () => {
  const line = document.getElementById("line")
  const until = async (done) => { while (!await done()) await new Promise((r) => setTimeout(r, 50)) }
  const phase = async () => (await fetch("phase")).text()
  if (await phase() === "typing") {
    await until(() => !line.disabled)
    for (const text of ["one", "two"]) { line.value = text; document.getElementById("form").requestSubmit() }
    line.value = "hal"
    line.value += "f"
    line.dispatchEvent(new Event("input"))
    await until(async () => await phase() === "reload")
    location.reload()
    return
  }
  await fetch("report", { method: "POST", body: line.value })
})()
</script>`

// refusing is a service that accepts no commands at first.
type refusing struct {
	mu     sync.Mutex
	phase  string
	posts  []body // the bodies of all attempts
	taken  []body
	tails  []int
	report *string
}

func (s *refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b body
	data, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(data, &b)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(append(slices.Clip(pageHTML), person...))
	case "/phase":
		fmt.Fprint(w, s.phase)
	case "/report":
		line := string(data)
		s.report = &line
	case "/session":
		_ = json.NewEncoder(w).Encode(State{State: StateActive})
	case "/start":
		if b.Lines != nil {
			s.tails = append(s.tails, *b.Lines)
		}
		w.Header().Set("X-Workflow-Run-Id", "ses-1")
		fmt.Fprintln(w, `{"type":"status","state":"active","seq":0,"cursor":"1.0"}`)
		_ = http.NewResponseController(w).Flush()
		s.mu.Unlock()
		<-r.Context().Done()
		s.mu.Lock()
	case "/command":
		s.posts = append(s.posts, b)
		switch {
		case s.phase == "after":
			s.taken = append(s.taken, b)
			fmt.Fprint(w, `{"ok":true}`)
			return
		case len(s.posts) >= 3:
			s.phase = "reload"
		}
		w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests}[len(s.posts)%2])
		fmt.Fprint(w, `{"ok":false,"error":"try again"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	if s.phase == "reload" && r.URL.Path == "/" {
		s.phase = "after"
	}
}

// TestNothingTypedIsLost: while the service accepts no commands, the page sends them again
// until it does, in order and with the same keys, also after a reload. An unfinished line
// is kept too.
func TestNothingTypedIsLost(t *testing.T) {
	needs.Programs(t, "chromium")
	service := &refusing{phase: "typing"}
	srv := httptest.NewServer(service)
	defer srv.Close()
	defer srv.CloseClientConnections()
	profile := filepath.Join(t.TempDir(), "profile")
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--no-first-run", "--user-data-dir="+profile, "--remote-debugging-port=0", srv.URL)
	cmd.Env = append(os.Environ(), "HOME="+profile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		// A killed browser may still write for a moment.
		require.Eventually(t, func() bool { return os.RemoveAll(profile) == nil }, testkit.Patience, 50*time.Millisecond)
	}()
	require.Eventually(t, func() bool {
		service.mu.Lock()
		defer service.mu.Unlock()
		return service.report != nil && len(service.taken) >= 2
	}, testkit.Patience, 50*time.Millisecond)
	service.mu.Lock()
	defer service.mu.Unlock()
	assert.Equal(t, "half", *service.report)
	var texts []string
	keys := map[string]bool{}
	for _, b := range service.taken {
		texts = append(texts, b.Command)
	}
	for _, b := range service.posts {
		assert.Equal(t, "ses-1", b.RunID)
		keys[b.Command+b.Key] = true
	}
	assert.Equal(t, []string{"one", "two"}, texts)
	assert.Len(t, keys, 2, "each command has one key, however often it is sent")
	assert.NotEmpty(t, service.tails, "the page requests the last lines of a known session")
}
