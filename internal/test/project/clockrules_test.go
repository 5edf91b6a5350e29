package project_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClockRules: each rule of TestNoClockDecides finds what it is for, and only
// that.
func TestClockRules(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		`func TestX(t *testing.T) { time.Sleep(time.Second) }`:                                                             "time.Sleep",
		`func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(time.Second) }) }`:                    "",
		`func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { nap() }) }; func nap() { time.Sleep(1) }`:        "",
		`func TestX(t *testing.T) { nap(); synctest.Test(t, func(t *testing.T) { nap() }) }; func nap() { time.Sleep(1) }`: "time.Sleep",
		`type bed struct{}; func (b bed) Read([]byte) (int, error) { time.Sleep(1); return 0, nil }
		 func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { io.ReadAll(bed{}) }) }`: "",
		`type bed struct{}; func (b bed) Read([]byte) (int, error) { time.Sleep(1); return 0, nil }
		 func TestX(t *testing.T) { io.ReadAll(bed{}) }`: "time.Sleep",
		`func TestX(t *testing.T) { l, _ := net.Listen("tcp", "127.0.0.1:8080") }`:                                        "a fixed port",
		`func TestX(t *testing.T) { s := http.Server{Addr: ":443"} }`:                                                     "a fixed port",
		`func TestX(t *testing.T) { l, _ := net.Listen("tcp", "127.0.0.1:0") }`:                                           "",
		`func TestX(t *testing.T) { d, _ := os.MkdirTemp("", "x") }`:                                                      "os.MkdirTemp",
		`func TestX(t *testing.T) { os.WriteFile("/tmp/x", nil, 0o600) }`:                                                 "everybody",
		`func TestX(t *testing.T) { sb.WriteFile("/tmp/x") }`:                                                             "",
		`func TestX(t *testing.T) { b := time.Now(); f(); assert.Less(t, time.Since(b), time.Second) }`:                   "decides",
		`func TestX(t *testing.T) { b := time.Now(); f(); took := time.Since(b); if took > time.Second { t.Fail() } }`:    "decides",
		`func TestX(t *testing.T) { m := func() any { b := time.Now(); return time.Since(b) }; assert.Less(t, m(), 5) }`:  "decides",
		`func TestX(t *testing.T) { b := time.Now(); f(); assert.GreaterOrEqual(t, time.Since(b), time.Second) }`:         "",
		`func TestX(t *testing.T) { assert.Greater(t, time.Until(end), time.Second) }`:                                    "decides",
		`func TestX(t *testing.T) { for b := time.Now(); time.Since(b) < time.Hour; { f() } }`:                            "",
		`func TestX(t *testing.T) { assert.WithinDuration(t, time.Now(), made, time.Minute) }`:                            "decides",
		`func TestX(t *testing.T) { require.Eventually(t, f, 5*time.Second, time.Millisecond) }`:                          "patience",
		`const some = 2*time.Second; func TestX(t *testing.T) { require.Eventually(t, f, some, 1) }`:                      "patience",
		`func TestX(t *testing.T) { require.Eventually(t, f, 2*time.Minute, time.Millisecond) }`:                          "",
		`func TestX(t *testing.T) { require.Never(t, f, time.Second, time.Millisecond) }`:                                 "nothing happens",
		`func TestX(t *testing.T) { select { case <-c: case <-time.After(time.Duration(n)*time.Second): t.Fail() } }`:     "time.After",
		`func TestX(t *testing.T) { ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second); f(ctx); cancel() }`:  "WithTimeout",
		`func TestX(t *testing.T) { ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience); f(ctx); cancel()}`: "",
	} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "x_test.go", "package x\n"+code, parser.SkipObjectResolution)
		require.NoError(t, err, code)
		found := clockFindings(fset, map[string]*ast.File{"x_test.go": file})
		if want == "" {
			assert.Empty(t, found, code)
		} else if assert.Len(t, found, 1, code) {
			assert.Contains(t, found[0].text, want, code)
		}
	}
}
