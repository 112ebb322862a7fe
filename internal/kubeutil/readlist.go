package kubeutil

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"
)

// readList reads a list from its JSON as that arrives. The text of the list is never kept
// as a whole, and of an object only what transform returns.
//
// A list that ends early, or has no resource version, is an error: half a list would pass
// for the whole state.
func readList[T any, P object[T]](body io.Reader, transform cache.TransformFunc) (*internalversion.List, error) {
	list := &internalversion.List{}
	meta, err := StreamItems(body, func(decode func(any) error) error {
		item, err := readItem[T, P](decode, transform)
		list.Items = append(list.Items, item)
		return err
	})
	list.ListMeta = meta
	return list, err
}

// StreamItems reads a list of API objects from its JSON as that arrives. read is called for
// each item, and decodes it once with the function that it is given, into a value that may
// have less than all fields of the object.
//
// A list that ends early, or has no resource version, is an error.
func StreamItems(body io.Reader, read func(decode func(any) error) error) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	from := kjson.NewDecoderCaseSensitivePreserveInts(body)
	err := readObject(from, func(field string) error {
		switch field {
		case "metadata":
			return from.Decode(&meta)
		case "items":
			return readArray(from, func() error { return read(from.Decode) })
		default:
			return from.Decode(&json.RawMessage{})
		}
	})
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && meta.ResourceVersion == "" {
		err = errors.New("the list has no resource version")
	}
	return meta, err
}

// readItem reads one object, and transforms it.
func readItem[T any, P object[T]](decode func(any) error, transform cache.TransformFunc) (runtime.Object, error) {
	item := P(new(T))
	if err := decode(item); err != nil {
		return nil, err
	}
	transformed, err := transform(item)
	if err != nil {
		return nil, err
	}
	result, ok := transformed.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("transforming a %T: a %T is not an API object", item, transformed)
	}
	return result, nil
}

// readObject reads a JSON object. read is called for each field, and reads its value.
func readObject(from kjson.Decoder, read func(field string) error) error {
	if err := expect(from, json.Delim('{')); err != nil {
		return err
	}
	for from.More() {
		field, err := from.Token()
		if err != nil {
			return err
		}
		if err := read(fmt.Sprint(field)); err != nil {
			return err
		}
	}
	return expect(from, json.Delim('}'))
}

// readArray reads a JSON array. read is called for each element, and reads it.
func readArray(from kjson.Decoder, read func() error) error {
	if err := expect(from, json.Delim('[')); err != nil {
		return err
	}
	for from.More() {
		if err := read(); err != nil {
			return err
		}
	}
	return expect(from, json.Delim(']'))
}

// expect reads a delimiter.
func expect(from kjson.Decoder, delimiter json.Delim) error {
	found, err := from.Token()
	if err != nil {
		return err
	}
	if found != delimiter {
		return fmt.Errorf("found %v instead of %v", found, delimiter)
	}
	return nil
}
