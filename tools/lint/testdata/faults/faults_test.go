package faults_test

import (
	"testing"
	"time"
)

func TestSleeps(t *testing.T) {
	time.Sleep(time.Second) // want: must not sleep
}
