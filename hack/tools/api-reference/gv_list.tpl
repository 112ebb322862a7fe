{{- define "gvList" -}}
# API reference

<!-- Generated from api/v1alpha1 by `make docs`: do not edit. -->

{{ range . }}{{ template "gvDetails" . }}{{ end -}}
{{- end -}}
