package auth_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/auth"
)

// Credentials given in code are used unchanged.
func ExampleStatic() {
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		Credentials: auth.Static(auth.Credentials{
			Token: os.Getenv("MY_VERCEL_TOKEN"), TeamID: "team_acme", ProjectID: "prj_builds",
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
}

// A function deployed on Vercel receives its token with each request.
func ExampleTokenHandler() {
	client, err := sandbox.NewClient(nil)
	if err != nil {
		log.Fatal(err)
	}
	handler := auth.TokenHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := client.Delete(r.Context(), "my-sandbox", nil); err != nil {
			http.Error(w, "could not delete the sandbox", http.StatusBadGateway)
		}
	}))
	log.Fatal(http.ListenAndServe(":8080", handler))
}

// A cache keeps a provider from asking a secret store for every request.
func ExampleCache() {
	provider := auth.Cache(auth.ProviderFunc(
		func(context.Context) (auth.Credentials, error) {
			fmt.Println("asking the store")
			return auth.Credentials{Token: "vcp_example", TeamID: "team_acme", ProjectID: "prj_builds"}, nil
		}), time.Hour)
	for range 3 {
		if _, err := provider.Credentials(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	// Output: asking the store
}
