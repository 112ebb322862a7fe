package witness

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// prefix is the one under which the API server keeps the objects of API groups of address
// management: ours, and Cluster API's.
const prefix = "/registry/ipam."

// Event represents one change that was stored. Events come in the order of etcd's revisions, across
// the kinds of the objects.
type Event struct {
	Revision int64
	// Seen is when the witness was notified.
	Seen   time.Time
	Kind   string
	Before *Object // nil if it was created
	After  *Object // nil if it is gone
}

// Follow passes on every change from the beginning of etcd's history on, until ctx is done. It asks
// etcd itself, over its JSON gateway, so that neither the API server's caches nor its absence come
// between; after etcd was away it continues from the last revision. It returns early only with an
// error that means that something may have been missed.
func Follow(ctx context.Context, etcd string, tell func(Event) error) error {
	f := &follower{etcd: etcd, tell: tell, next: 1, objects: map[string]*Object{}}
	for ctx.Err() == nil {
		if err := f.watch(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond): // etcd may be away
		case <-ctx.Done():
		}
	}
	return nil
}

type follower struct {
	etcd string
	tell func(Event) error
	next int64
	// objects holds the last state of every object, by its key.
	objects map[string]*Object
}

// response holds the answer of etcd's gateway, as far as it is read.
type response struct {
	Result struct {
		Canceled        bool   `json:"canceled"`
		CancelReason    string `json:"cancel_reason"`
		CompactRevision string `json:"compact_revision"`
		Events          []struct {
			Type string `json:"type"`
			KV   struct {
				Key         []byte `json:"key"`
				ModRevision string `json:"mod_revision"`
				Value       []byte `json:"value"`
			} `json:"kv"`
		} `json:"events"`
	} `json:"result"`
}

// watch follows until the connection breaks, which is no error.
func (f *follower) watch(ctx context.Context) error {
	body, err := f.open(ctx)
	if err != nil {
		return nil // etcd is away
	}
	defer func() { _ = body.Close() }()
	decoder := json.NewDecoder(body)
	for {
		var r response
		if err := decoder.Decode(&r); err != nil {
			return nil // etcd went away
		}
		if r.Result.Canceled {
			return fmt.Errorf("etcd ended the watch at revision %d (compacted at %q): %s", f.next, r.Result.CompactRevision, r.Result.CancelReason)
		}
		for _, e := range r.Result.Events {
			revision, err := strconv.ParseInt(e.KV.ModRevision, 10, 64)
			if err != nil {
				return fmt.Errorf("reading a revision: %w", err)
			}
			if err := f.take(string(e.KV.Key), revision, e.KV.Value, e.Type == "DELETE"); err != nil {
				return err
			}
		}
	}
}

func (f *follower) open(ctx context.Context) (io.ReadCloser, error) {
	encode := func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) }
	end := prefix[:len(prefix)-1] + "/" // the character after the dot
	request, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key": encode(prefix), "range_end": encode(end), "start_revision": strconv.FormatInt(f.next, 10),
	}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.etcd+"/v3/watch", bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// take takes one change in. One that is repeated, because the connection broke within a revision,
// is not passed on again.
func (f *follower) take(key string, revision int64, value []byte, deleted bool) error {
	if revision < f.next {
		return nil
	}
	f.next = revision + 1
	_, resource, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	kind, name, _ := strings.Cut(resource, "/")
	switch kind {
	case Claims, Records, Pools, AddressClaims, Addresses:
	default:
		return nil
	}
	e := Event{Revision: revision, Seen: time.Now(), Kind: kind, Before: f.objects[kind+"/"+name]}
	if deleted {
		delete(f.objects, kind+"/"+name)
		return f.tell(e)
	}
	after, err := Read(value)
	if err != nil {
		return fmt.Errorf("%s at revision %d: %w", key, revision, err)
	}
	f.objects[kind+"/"+name], e.After = after, after
	return f.tell(e)
}
