package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// logLines and logBytes bound the log of a container. Only logLines is sent to the API server: its
// own bound of bytes would leave out the end, which matters most.
const (
	logLines = int64(5000)
	logBytes = 2 << 20
)

// logs writes the end of the logs of the operator's pods.
func (c *Collector) logs(ctx context.Context, a *archive) error {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(c.Operator), labelled()); err != nil {
		a.unread("logs of the operator", err)
		return nil
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for j := range pod.Spec.Containers {
			if err := c.log(ctx, a, pod.Name, pod.Spec.Containers[j].Name, false); err != nil {
				return err
			}
		}
		for j := range pod.Status.ContainerStatuses {
			if status := &pod.Status.ContainerStatuses[j]; status.RestartCount > 0 {
				if err := c.log(ctx, a, pod.Name, status.Name, true); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *Collector) log(ctx context.Context, a *archive, pod, container string, previous bool) error {
	file := fmt.Sprintf("logs/%s.%s.log", pod, container)
	if previous {
		file = fmt.Sprintf("logs/%s.%s.previous.log", pod, container)
	}
	lines := logLines
	stream, err := c.Clients.CoreV1().Pods(c.Operator).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines, Timestamps: true,
	}).Stream(ctx)
	if err != nil {
		a.unread(file, err)
		return nil
	}
	defer stream.Close() //nolint:errcheck // all of it was read
	var end tail
	if _, err := io.Copy(&end, stream); err != nil {
		a.unread("the end of "+file, err)
	}
	return a.text(file, string(end.text()))
}

// tail keeps the end of the written text: whole lines of logBytes at most.
type tail struct {
	kept []byte
	cut  bool
}

// Write keeps up to twice as much, so that it moves each byte once at most.
func (t *tail) Write(p []byte) (int, error) {
	if t.kept = append(t.kept, p...); len(t.kept) > 2*logBytes {
		t.shorten()
	}
	return len(p), nil
}

func (t *tail) shorten() {
	t.kept, t.cut = append(t.kept[:0], t.kept[len(t.kept)-logBytes:]...), true
}

func (t *tail) text() []byte {
	if len(t.kept) > logBytes {
		t.shorten()
	}
	if !t.cut {
		return t.kept
	}
	_, whole, _ := bytes.Cut(t.kept, []byte("\n")) // a part of a token would not be recognized
	return whole
}
