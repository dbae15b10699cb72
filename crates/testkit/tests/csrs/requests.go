// Reads signing requests, one base64 DER a line, and writes one JSON line for each: what Go's crypto/x509 makes of it.
package main

import (
	"bufio"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"os"
)

type seen struct {
	Error      string   `json:"error"`
	Signature  string   `json:"signature"`
	URIs       []string `json:"uris"`
	Others     []string `json:"others"`
	Extensions []string `json:"extensions"`
	Subject    string   `json:"subject"`
	PublicKey  []byte   `json:"public_key"`
}

func look(der []byte) seen {
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return seen{Error: err.Error()}
	}
	found := seen{Subject: request.Subject.CommonName + request.Subject.String(), PublicKey: request.RawSubjectPublicKeyInfo}
	if err := request.CheckSignature(); err != nil {
		found.Signature = err.Error()
	}
	for _, uri := range request.URIs {
		found.URIs = append(found.URIs, uri.String())
	}
	found.Others = append(append(found.Others, request.DNSNames...), request.EmailAddresses...)
	for _, address := range request.IPAddresses {
		found.Others = append(found.Others, address.String())
	}
	for _, extension := range request.Extensions {
		found.Extensions = append(found.Extensions, extension.Id.String())
	}
	return found
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		der, err := base64.StdEncoding.DecodeString(lines.Text())
		if err != nil {
			panic(err)
		}
		if err := out.Encode(look(der)); err != nil {
			panic(err)
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
