package sandbox

import (
	"cmp"
	"encoding/base64"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-vercel/sandbox/internal/test/needs"
)

// TestBinaryDecoder decodes lines of base64 that are cut anywhere.
func TestBinaryDecoder(t *testing.T) {
	var want []byte
	var text string
	for i := range 40 {
		line := make([]byte, i+1)
		for j := range line {
			line[j] = byte(37*i + j)
		}
		want = append(want, line...)
		text += base64.StdEncoding.EncodeToString(line) + "\n"
	}
	for size := 1; size < 90; size++ {
		var d binaryDecoder
		var got []byte
		for rest := []byte("bash: warning: no locale\n" + binaryMark + text); len(rest) > 0; {
			n := min(size, len(rest))
			piece, err := d.decode(rest[:n])
			require.NoError(t, err)
			got = append(got, piece...)
			rest = rest[n:]
		}
		assert.Equal(t, want, got, size)
	}
	for _, text := range []string{"bash: dd: not found\n", binaryMark + "QUJ\n", binaryMark + "QQ==QUJD\n"} {
		var d binaryDecoder
		_, err := d.decode([]byte(text))
		assert.ErrorContains(t, cmp.Or(err, d.end()), "not encoded", text)
	}
	_, err := new(binaryDecoder).decode(make([]byte, maxBeforeMark+1))
	assert.ErrorContains(t, err, "not encoded")
}

// TestBinaryEnvironment: a program started with Binary has the caller's variables,
// whatever their names, and PWD and SHLVL of bash.
func TestBinaryEnvironment(t *testing.T) {
	needs.Programs(t, "bash", "dd", "base64")
	want := map[string]bool{"PATH=" + os.Getenv("PATH"): true}
	for c := byte('A'); c <= 'z'; c++ {
		if c <= 'Z' || c >= 'a' {
			want[string(c)+"=a b"] = true
		}
	}
	name, args := wrapBinary("env", []string{"-0"})
	cmd := exec.Command(name, args...)
	cmd.Env = slices.Collect(maps.Keys(want))
	out, err := cmd.Output()
	require.NoError(t, err)
	text, err := new(binaryDecoder).decode(out)
	require.NoError(t, err)
	got := map[string]bool{}
	for variable := range strings.SplitSeq(strings.TrimSuffix(string(text), "\x00"), "\x00") {
		if name, _, _ := strings.Cut(variable, "="); name != "PWD" && name != "SHLVL" {
			got[variable] = true
		}
	}
	assert.Equal(t, want, got)
}

// FuzzBinaryDecoder decodes any text in two pieces. The decoder returns an error, or fewer
// bytes than the text has. It keeps at most three characters.
func FuzzBinaryDecoder(f *testing.F) {
	for _, text := range []string{"", "QUJD\n", "QUJ\n", "QQ==QUJD\n", "====\n", "Q\nU", "\x00\xff"} {
		f.Add([]byte(binaryMark+text), 1)
	}
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		var d binaryDecoder
		at = min(max(at, 0), len(text))
		var got []byte
		for _, part := range [][]byte{text[:at], text[at:]} {
			piece, err := d.decode(part)
			if err != nil {
				return
			}
			got = append(got, piece...)
			if len(d.rest) > 3 {
				t.Fatalf("%d characters are kept", len(d.rest))
			}
		}
		if len(got)*4 > len(text)*3 {
			t.Fatalf("%d bytes of %d characters", len(got), len(text))
		}
	})
}

// TestUnwrapBinary: unwrapBinary recognizes a wrapped command.
func TestUnwrapBinary(t *testing.T) {
	name, args := wrapBinary("tar", []string{"-c", "."})
	name, args, ok := unwrapBinary(name, args)
	assert.True(t, ok)
	assert.Equal(t, "tar", name)
	assert.Equal(t, []string{"-c", "."}, args)
	name, _, ok = unwrapBinary("bash", []string{"-c", "true"})
	assert.False(t, ok)
	assert.Equal(t, "bash", name)
}

// TestBinaryScript: the exit code and both outputs are those of the program.
func TestBinaryScript(t *testing.T) {
	needs.Programs(t, "bash", "setsid")
	for _, row := range []struct {
		args           []string
		stdout, stderr string
		code           int
	}{
		{[]string{"printf", `\377\0\n`}, "\xff\x00\n", "", 0},
		{[]string{"sh", "-c", `printf '\202'; printf '\254' >&2; exit 3`}, "\x82", "\xac", 3},
		{[]string{"sh", "-c", `kill -9 $$`}, "", "", 137},
		{[]string{"sh", "-c", `kill -TERM 0; sleep 10`}, "", "", 143},
		{[]string{"sh", "-c", `trap 'sleep 0.1; echo bye; exit 4' TERM; kill -TERM 0; sleep 1`}, "bye\n", "", 4},
		{[]string{"head", "-c", "300000", "/dev/zero"}, string(make([]byte, 300000)), "", 0},
		{[]string{"sh", "-c", "for fd in 3 4 5; do [ ! -e /proc/$$/fd/$fd ] || echo $fd; done"}, "", "", 0},
	} {
		name, args := wrapBinary(row.args[0], row.args[1:])
		cmd := exec.Command("setsid", append([]string{"-w", name}, args...)...)
		cmd.Env = append(cmd.Environ(), "BASH_ENV=/nonexistent/x", "SHELLOPTS=noexec")
		var out, errs decodedLines
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if row.code == 0 {
			assert.NoError(t, err)
		}
		assert.Equal(t, row.code, cmd.ProcessState.ExitCode(), row.args)
		assert.Equal(t, row.stdout, string(out.got), row.args)
		assert.Equal(t, row.stderr, string(errs.got), row.args)
	}
}

// decodedLines decodes the data that is written to it.
type decodedLines struct {
	binaryDecoder
	got []byte
}

func (l *decodedLines) Write(p []byte) (int, error) {
	piece, err := l.decode(p)
	l.got = append(l.got, piece...)
	return len(p), err
}
