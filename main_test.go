package sandbox_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/test/needs"
	"github.com/go-vercel/sandbox/internal/test/testkit"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// TestMain fails the run when a goroutine is leaked.
func TestMain(m *testing.M) {
	testkit.Main(withEmulator{m})
}

// withEmulator runs tests with an emulator's client as the default client, so that
// examples need no lines that their readers would have to remove.
type withEmulator struct{ tests *testing.M }

func (m withEmulator) Run() int {
	code, err := m.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (m withEmulator) run() (code int, err error) {
	if needs.BusyBox() && flag.Lookup("test.skip").Value.String() == "" {
		fmt.Println("examples are not run: they need GNU's programs") // an example can't skip itself
		if err := flag.Set("test.skip", "^Example"); err != nil {
			return 0, err
		}
	}
	srv, err := sandboxtest.NewServer(&sandboxtest.Options{Realistic: os.Getenv("SANDBOX_TEST_REALISTIC") == "1"})
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := srv.Close(); err == nil {
			err = e
		}
	}()
	c := srv.Credentials()
	for name, value := range map[string]string{
		"VERCEL_SANDBOX_BASE_URL": srv.URL, "VERCEL_TOKEN": c.Token, "VERCEL_TEAM_ID": c.TeamID, "VERCEL_PROJECT_ID": c.ProjectID,
	} {
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	client, err := sandbox.DefaultClient()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	// Tests that make other clients pass an address, or expect the default address.
	if err := os.Unsetenv("VERCEL_SANDBOX_BASE_URL"); err != nil {
		return 0, err
	}
	return m.tests.Run(), nil
}
