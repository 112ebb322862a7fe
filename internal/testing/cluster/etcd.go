package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// SnapshotEtcd writes the present content of etcd into a file, by its maintenance API (over the
// JSON gateway, as `etcdctl snapshot save` does by gRPC).
func (c *Cluster) SnapshotEtcd(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdURL()+"/v3/maintenance/snapshot", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(copySnapshot(file, answer.Body), file.Close())
}

// EtcdRevision returns the revision of the present content of etcd.
func (c *Cluster) EtcdRevision(ctx context.Context) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdURL()+"/v3/kv/range", strings.NewReader(`{"key":"AA==","count_only":true}`))
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var found struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err = json.NewDecoder(answer.Body).Decode(&found)
	return found.Header.Revision, err
}

// copySnapshot writes the parts in which a snapshot is sent, one after the other. The last is
// the checksum of the others, which a restore verifies.
func copySnapshot(dst io.Writer, src io.Reader) error {
	decoder := json.NewDecoder(src)
	for {
		var part struct {
			Result struct {
				Blob []byte `json:"blob"`
			} `json:"result"`
			Error json.RawMessage `json:"error"`
		}
		err := decoder.Decode(&part)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the snapshot: %w", err)
		case part.Error != nil:
			return fmt.Errorf("reading the snapshot: %s", part.Error)
		}
		if _, err := dst.Write(part.Result.Blob); err != nil {
			return err
		}
	}
}

// RestoreEtcd stops the API server and etcd, puts the content of a snapshot into a new data
// directory in place of etcd's, and starts both again. The arguments are for `etcdutl snapshot
// restore`.
func (c *Cluster) RestoreEtcd(ctx context.Context, snapshot string, args ...string) error {
	etcdutl := c.assets.path("etcdutl")
	if _, err := os.Stat(etcdutl); err != nil {
		return fmt.Errorf("%w: run `make controlplane`", err)
	}
	if err := errors.Join(c.APIServer.Stop(), c.Etcd.Stop()); err != nil {
		return err
	}
	data := c.files.pathTo("etcd")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	args = append([]string{"snapshot", "restore", snapshot, "--data-dir=" + data}, args...)
	if out, err := exec.CommandContext(ctx, etcdutl, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("etcdutl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	return c.APIServer.Start(ctx)
}
