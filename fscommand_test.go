package sandbox

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOperands(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, operands("a", "b"))
	assert.Equal(t, []string{"--", "a", "-rf"}, operands("a", "-rf"))
	assert.Equal(t, []string{"a-"}, operands("a-"))
}

func TestCarry(t *testing.T) {
	name, args := carry("rm", []string{"-r", "häs chen"})
	assert.Equal(t, "rm", name)
	assert.Equal(t, []string{"-r", "häs chen"}, args)

	odd := []string{"%s\\0", "\xff", "é\xfe", "it's", `back\slash`, "new\nline", "$HOME", "`id`", "\x01f0", ""}
	name, args = carry("printf", odd)
	for _, a := range append(args, name) {
		require.Equal(t, strings.ToValidUTF8(a, ""), a, "can be carried by JSON")
	}
	bash, err := exec.LookPath(name)
	if err != nil {
		t.Skip("there is no bash here")
	}
	out, err := exec.Command(bash, args...).Output()
	require.NoError(t, err)
	assert.Equal(t, strings.Join(odd[1:], "\x00")+"\x00", string(out))
}

func TestLine(t *testing.T) {
	assert.Equal(t, " a\n", line(" a\n\n"))
	assert.Equal(t, "a ", line("a \n"))
}
