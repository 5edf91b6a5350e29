package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-vercel/sandbox/durable/internal/mutual"
)

// machineAddr is the address of this machine in the network of an emulator's
// sandboxes.
const machineAddr = "10.0.2.2"

// folderToken returns the token that all processes of a folder require in requests. It
// creates the token if the folder has none. Only this user can read the folder.
func folderToken(dir string) (string, error) {
	file := filepath.Join(dir, "token")
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if token := strings.TrimSpace(string(data)); token != "" {
		return token, nil
	}
	token := rand.Text()
	return token, mutual.WriteKey(file, []byte(token+"\n"))
}
