package main

import (
	"testing"

	"github.com/go-vercel/sandbox/sandboxtest"
)

func TestEmulator(t *testing.T) {
	sb, err := sandboxtest.New(t, nil).Client().Create(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
}
