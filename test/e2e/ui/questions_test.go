package ui

import (
	"net/http"
	"strings"
	"testing"
)

// questions requests the answers that the commands give.
func (w *world) questions(t *testing.T) {
	c := w.start(t, "")
	for path, want := range map[string]struct {
		code  int
		texts []string
	}{
		"/api/who?address=10.1.0.1":                                        {http.StatusOK, []string{`"kind":"WhoReport"`, `"name":"apps"`, `"poolCIDR":"10.1.0.0/16"`}},
		"/api/who?address=10.0.0.2":                                        {http.StatusOK, []string{`"name":"machine-0"`, `"kind":"Machine"`}},
		"/api/who?address=9.9.9.9":                                         {http.StatusNotFound, []string{`"exitCode":4`}},
		"/api/who?address=10.1.0.1/16":                                     {http.StatusBadRequest, []string{"has host bits set", `"exitCode":2`}},
		"/api/explain?kind=ipclaim&namespace=team-b&name=vip-2":            {http.StatusOK, []string{`"kind":"ExplainReport"`, `"reason":"PoolExhausted"`, `"remedies"`, `"uid":"`}},
		"/api/explain?kind=ipaddressclaim&namespace=team-a&name=machine-0": {http.StatusOK, []string{`"block":"10.0.0.2/32"`}},
		"/api/explain?kind=ipclaim&namespace=team-b&name=none":             {http.StatusNotFound, []string{`"exitCode":4`}},
		"/api/free?pool=IPPool/west&length=24&count=2":                     {http.StatusOK, []string{`"blocks":["10.1.2.0/24","10.1.3.0/24"]`}},
		"/api/free?pool=IPPool/vips":                                       {http.StatusInsufficientStorage, []string{`"exitCode":3`}},
		"/api/free?pool=IPPool/none":                                       {http.StatusNotFound, []string{`"exitCode":4`}},
		"/api/machine?name=node-7":                                         {http.StatusOK, []string{`"claims":[{"kind":"IPAddressClaim","namespace":"team-a","name":"machine-0","machine":{`}},
		"/api/machine?name=node-8":                                         {http.StatusOK, []string{`"claims":[]`}},
		"/":                                                                {http.StatusOK, []string{"<!doctype html>"}},
	} {
		code, text := c.get(path)
		if code != want.code {
			t.Errorf("%s: %d, want %d: %s", path, code, want.code, text)
		}
		for _, part := range want.texts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: does not say %s: %s", path, part, text)
			}
		}
	}
}
