package wire

import (
	"encoding/json"
	"maps"
	"reflect"
)

// plainSession is Session without its methods.
type plainSession Session

// sessionFields are the names of Session's fields in JSON.
var sessionFields = jsonNames(reflect.TypeFor[Session]())

// UnmarshalJSON keeps unknown fields in Extra.
func (s *Session) UnmarshalJSON(data []byte) error {
	var plain plainSession
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	var err error
	plain.Extra, err = unknown(data, func(name string, _ json.RawMessage) bool { return sessionFields[name] })
	*s = Session(plain)
	return err
}

// unknown returns the members of an object that are not known; nil if there are
// none.
func unknown(data []byte, known func(name string, value json.RawMessage) bool) (map[string]json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if maps.DeleteFunc(all, known); len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// MarshalJSON encodes the fields in Extra along with the others.
func (s Session) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainSession(s))
	if err != nil || len(s.Extra) == 0 {
		return data, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for k, v := range s.Extra {
		if !sessionFields[k] {
			all[k] = v
		}
	}
	return json.Marshal(all)
}
