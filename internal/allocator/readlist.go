package allocator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	kjson "sigs.k8s.io/json"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// readList reads a list of IPAllocations, without their managed fields, from its JSON
// as that arrives: the API server writes such a list item by item (KEP-5116), so that
// the two take turns with neither waiting for the other, and neither the text of a
// hundred thousand records nor their managed fields are ever kept as a whole.
//
// A list that ends early, or does not say of which resource version it is, is an error:
// half a list would pass for the whole state.
func readList(body io.Reader) (*internalversion.List, error) {
	list := &internalversion.List{}
	from := kjson.NewDecoderCaseSensitivePreserveInts(body)
	err := readObject(from, func(field string) error {
		switch field {
		case "metadata":
			return from.Decode(&list.ListMeta)
		case "items":
			return readArray(from, func() error {
				item := &v1alpha1.IPAllocation{}
				err := from.Decode(item)
				item.ManagedFields = nil
				list.Items = append(list.Items, item)
				return err
			})
		default:
			return from.Decode(&json.RawMessage{})
		}
	})
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && list.ResourceVersion == "" {
		err = errors.New("it does not say of which resource version it is")
	}
	if err != nil {
		return nil, fmt.Errorf("reading a list of IPAllocations: %w", err)
	}
	return list, nil
}

// readObject reads a JSON object; the value of each field is for read to read.
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

// readArray reads a JSON array, each of whose elements is for read to read.
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
