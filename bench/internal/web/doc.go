// Package web measures the HTTP side of the project. Its simulations run the code of package
// retry against a model of a server, in a bubble of testing/synctest: minutes with a thousand
// clients take a second, and nothing else on the machine is in them.
package web
