package conformance

import (
	"encoding/json"
	"fmt"

	"github.com/go-vercel/sandbox"
)

func opSerialize(c *call) (any, error) {
	data, err := json.Marshal(c.target)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(data), nil
}

// opDeserialize revives an object. In JavaScript the object makes a client from
// the environment; here it is attached to one.
func opDeserialize(c *call) (any, error) {
	var a struct {
		Class string          `json:"class"`
		From  string          `json:"from"`
		Data  json.RawMessage `json:"data"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	data := a.Data
	if a.From != "" {
		saved, _ := c.d.load(a.From)
		raw, ok := saved.(json.RawMessage)
		if !ok {
			return nil, fmt.Errorf("conformance: nothing serialized as %s", a.From)
		}
		data = raw
	}
	client, err := c.client(statics{})
	if err != nil {
		return nil, err
	}
	var v sandbox.Handle
	switch a.Class {
	case "Sandbox":
		v = &sandbox.Sandbox{}
	case "Session":
		v = &sandbox.Session{}
	case "Snapshot":
		v = &sandbox.Snapshot{}
	case "Drive":
		v = &sandbox.Drive{}
	case "Command":
		v = &sandbox.Command{}
	case "CommandFinished":
		v = &sandbox.CommandResult{}
	default:
		return nil, fmt.Errorf("conformance: unknown class %q", a.Class)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return nil, err
	}
	client.Bind(v)
	return v, nil
}
