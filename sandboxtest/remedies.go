package sandboxtest

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
)

// missingPart returns the error for a part of the platform that is missing on this machine.
// effect says what sandboxes lack without it.
func missingPart(effect, remedy string) error { return errors.New(effect + ": " + remedy) }

// namespacesRemedy returns what the user can do to make namespaces available. It returns
// the first remedy that fits the current state of the machine.
func namespacesRemedy() string {
	contains := func(file, value string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.TrimSpace(string(text)) == value
	}
	switch {
	case runtime.GOOS != "linux":
		return "run it on Linux, or in a container: docker run --privileged"
	case inContainer():
		return "start the container with docker run --privileged"
	case contains("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	case contains("/proc/sys/kernel/unprivileged_userns_clone", "0"):
		return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
	case contains("/proc/sys/user/max_user_namespaces", "0"):
		return "sudo sysctl -w user.max_user_namespaces=10000"
	}
	return "run it as root, or where user namespaces are allowed"
}

// tunRemedy returns what the user can do to make /dev/net/tun available.
func tunRemedy() string {
	_, err := os.Stat("/dev/net/tun")
	switch {
	case err == nil:
		return "sudo chmod 666 /dev/net/tun"
	case inContainer():
		return "start the container with docker run --device /dev/net/tun"
	}
	return "sudo modprobe tun && sudo chmod 666 /dev/net/tun"
}

// inContainer guesses from files that Docker and Podman create.
func inContainer() bool {
	for _, file := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return os.Getenv("container") != ""
}

// joinReasons joins the reasons why a better mode is not available. It lists each reason
// once, without the directory in which it occurred.
func joinReasons(reasons error) string {
	if reasons == nil {
		return "no namespaces on this system"
	}
	var all []string
	for line := range strings.SplitSeq(reasons.Error(), "\n") {
		if _, rest, ok := strings.Cut(line, box.ErrUnavailable.Error()+": "); ok {
			line = rest
		}
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "; ")
}
