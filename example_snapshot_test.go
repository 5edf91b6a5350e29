package sandbox_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-vercel/sandbox"
)

func ExampleSandbox_Snapshot() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	if err := sb.FS().WriteFile(ctx, "model.bin", []byte("weights"), 0o644); err != nil {
		log.Fatal(err)
	}
	snapshot, err := sb.Snapshot(ctx, &sandbox.SnapshotOptions{Expiration: 30 * 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Delete(ctx)

	twin, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Source:    sandbox.SnapshotSource{SnapshotID: snapshot.ID()},
		Ephemeral: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer twin.Close()
	if _, err := twin.RunCommand(ctx, "cat", []string{"model.bin"}, &sandbox.CommandOptions{Stdout: os.Stdout}); err != nil {
		log.Fatal(err)
	}
	// Output: weights
}

// Go back to an earlier state.
func ExampleUpdateOptions_rollback() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	if err := sb.FS().WriteFile(ctx, "state.txt", []byte("good"), 0o644); err != nil {
		log.Fatal(err)
	}
	good, err := sb.Snapshot(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := sb.FS().WriteFile(ctx, "state.txt", []byte("broken"), 0o644); err != nil {
		log.Fatal(err)
	}

	if _, err := sb.Stop(ctx, nil); err != nil { // before the update, because stopping saves the current state
		log.Fatal(err)
	}
	if err := sb.Update(ctx, &sandbox.UpdateOptions{CurrentSnapshotID: good.ID()}); err != nil {
		log.Fatal(err)
	}
	state, err := sb.FS().ReadFile(ctx, "state.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(state))
	// Output: good
}

func ExampleClient_GetSnapshot() {
	ctx := context.Background()
	client, err := sandbox.DefaultClient()
	if err != nil {
		log.Fatal(err)
	}
	sb, err := client.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	made, err := sb.Snapshot(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	snapshot, err := client.GetSnapshot(ctx, made.ID())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(snapshot.Info().Status, snapshot.Info().CreationMethod)
	if err := snapshot.Delete(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: created manual
}

// List the snapshots that led to a snapshot.
func ExampleClient_SnapshotTree() {
	ctx := context.Background()
	client, err := sandbox.DefaultClient()
	if err != nil {
		log.Fatal(err)
	}
	sb, err := client.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	var last *sandbox.Snapshot
	for range 3 {
		if last, err = sb.Snapshot(ctx, nil); err != nil {
			log.Fatal(err)
		}
	}
	ancestors := 0
	for node, err := range client.SnapshotTree(ctx, last.ID(), &sandbox.SnapshotTreeOptions{SortOrder: sandbox.Descending}) {
		if err != nil {
			log.Fatal(err)
		}
		if node.Snapshot.ID != last.ID() {
			ancestors++
		}
	}
	fmt.Println(ancestors)
	// Output: 2
}

// Download something, then deny all connections.
func ExampleDenyAll() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		NetworkPolicy: &sandbox.NetworkPolicy{Allow: []string{"registry.npmjs.org", "*.npmjs.org"}},
		Ephemeral:     true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	// … npm install …
	if err := sb.Update(ctx, &sandbox.UpdateOptions{NetworkPolicy: sandbox.DenyAll()}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sb.CurrentSession().Info().NetworkPolicy)
	// Output: "deny-all"
}

// The firewall adds the token to requests to one host. The token never enters the
// sandbox.
func ExampleNetworkPolicy() {
	policy := &sandbox.NetworkPolicy{
		Rules: map[string][]sandbox.PolicyRule{
			"api.example.com": {{
				Match: &sandbox.PolicyMatch{Path: &sandbox.PolicyMatcher{StartsWith: new("/v1/")}, Method: []string{"GET", "POST"}},
				Transform: []sandbox.PolicyTransform{{
					Headers: sandbox.PolicyHeaders{"Authorization": "Bearer " + os.Getenv("EXAMPLE_TOKEN")},
				}},
			}},
			"registry.npmjs.org": nil, // allowed, without changes to requests
		},
		DenySubnets: []string{"169.254.0.0/16"},
	}
	fmt.Println(policy)
	// Output: {"allow":{"api.example.com":[{"match":{"path":{"startsWith":"/v1/"},"method":["GET","POST"]},"transform":[{"headers":{"Authorization":"<redacted>"}}]}],"registry.npmjs.org":[]},"subnets":{"deny":["169.254.0.0/16"]}}
}
