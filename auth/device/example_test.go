package device_test

import (
	"log"
	"os"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
	"github.com/go-vercel/sandbox/auth/device"
)

// A terminal program can ask its user to log in.
func ExampleLogin() {
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Chain(
			auth.Default(nil),
			device.Login(device.PromptOn(os.Stderr), nil),
		),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
}
