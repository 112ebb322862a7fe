package ui

import "testing"

// begins compares the first state with what the API server has.
func (w *world) begins(t *testing.T) {
	c := w.start(t, "")
	v := c.views().isReady(t)
	t.Log(v.text())
	for _, q := range []string{"/api/who?address=10.1.0.1", "/api/who?address=9.9.9.9", "/api/explain?kind=ipclaim&namespace=team-b&name=vip-2", "/api/free?pool=IPPool/west&length=24&count=3", "/api/machine?name=m", "/"} {
		code, text := c.get(q)
		t.Log(q, code, text)
	}
	t.Log(c.stop(), c.errs.String())
}
