package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseNetworkPolicy reads a policy that a person or a program has written, as
// JSON in the form of the JavaScript SDK. It refuses what [Client.Create] would
// refuse, and also unknown and repeated fields and null, all of which
// json.Unmarshal accepts because it reads responses. The error matches
// [ErrInvalid] and names the field or the byte, but no header value.
func ParseNetworkPolicy(data []byte) (*NetworkPolicy, error) {
	dec, p := json.NewDecoder(bytes.NewReader(data)), new(NetworkPolicy)
	err := json.Unmarshal(data, p) // which limits the depth
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, invalid("network policy", "at byte %d: %v", syntax.Offset, err)
	}
	switch strictly := strict(dec); {
	case strictly != nil:
		return nil, invalid("network policy", "at byte %d: %v", dec.InputOffset(), strictly)
	case !utf8.Valid(data):
		return nil, invalid("network policy", "is not UTF-8")
	case err != nil:
		return nil, invalid("network policy", "%s", strings.TrimPrefix(err.Error(), "network policy: "))
	case p.unread != nil:
		return nil, invalid("network policy", "not known: %s", strings.Join(p.unread, ", "))
	}
	if _, err := p.toWire(); err != nil {
		return nil, err
	}
	return p, nil
}

// strict reads a value, and refuses null and repeated names.
func strict(dec *json.Decoder) error {
	token, err := dec.Token()
	if token == nil && err == nil {
		err = errors.New("null is not allowed")
	}
	names := map[json.Token]bool{}
	for list := token == json.Delim('['); err == nil && (list || token == json.Delim('{')) && dec.More(); {
		if !list {
			name, _ := dec.Token()
			if names[name] {
				return fmt.Errorf("%q comes twice", name)
			}
			names[name] = true
		}
		err = strict(dec)
	}
	if _, nested := token.(json.Delim); nested && err == nil {
		_, err = dec.Token()
	}
	return err
}
