{{- define "gvDetails" -}}
{{- $gv := . -}}
Group and version: `{{ $gv.GroupVersionString }}`.

{{ $gv.Doc }}
In the tables, *Required* marks the required fields; all others are optional. A length counts
characters. The sentences in the column *validation* are the errors with which the API server
refuses a value. A field with "is immutable" never changes; a field with "is immutable once set"
does not change after it has a value; in `spec`, all other fields can be changed at any time.
`ObjectMeta`, `LabelSelector`, `Condition` and `Time` are types of Kubernetes.

[The end](#conditions-and-reasons) lists the conditions and their reasons.

| kind | |
|---|---|
{{- range $gv.SortedKinds }}
{{- $kind := $gv.TypeForKind . }}
| [{{ . }}](#{{ lower . }}) | {{ regexReplaceAll "\\s+" (first (splitList ". " (regexReplaceAll "\\s+" $kind.Doc " "))) " " | trimSuffix "." }} |
{{- end }}
{{ range $gv.SortedKinds }}
{{- $kind := $gv.TypeForKind . }}
{{ template "type" (dict "type" $kind "gv" $gv "heading" "##") }}
{{- range $kind.Members }}
{{- if or (eq .Name "spec") (eq .Name "status") }}
{{- $part := .Type }}
{{- if hasPrefix $kind.Name $part.Name }}
{{ template "type" (dict "type" $part "gv" $gv "heading" "###") }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
## Types of fields
{{ range $type := $gv.SortedTypes }}
{{- $own := false }}
{{- range $gv.SortedKinds }}
{{- if or (eq $type.Name .) (eq $type.Name (print . "Spec")) (eq $type.Name (print . "Status")) }}{{ $own = true }}{{ end }}
{{- end }}
{{- if and (not $own) (gt (len $type.References) 0) (ne $type.Name "PoolSpec") (ne $type.Name "HostSettings") }}
{{ template "type" (dict "type" $type "gv" $gv "heading" "###") }}
{{- end }}
{{- end }}
{{- end -}}
