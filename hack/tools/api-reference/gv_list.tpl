{{- define "gvList" -}}
# API reference

<!-- Generated from api/v1alpha1 by `make api-reference`: do not edit. -->

{{ range . }}{{ template "gvDetails" . }}{{ end -}}
{{- end -}}
