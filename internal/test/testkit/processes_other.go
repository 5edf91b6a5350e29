//go:build !linux

package testkit

import "testing"

// ProcessesWith returns no processes, because this system has no /proc.
func ProcessesWith(*testing.T, string) []int { return nil }
