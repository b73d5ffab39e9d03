// Package model runs random verbs against a small model of the engine. After
// each step, model and store agree.
package model
