"""The drill: a real job on a real desktop by a scripted model, and the proof that it was done.

`drill.run_drill` is the entrance. `script` plays the model and sees only the images that it is sent, through
`vision`; `endpoint` serves it as a Responses endpoint; `stage` puts the site and the windows into the guest
and takes them away; `verify` looks at what the guest really holds. The `guest_` modules are programs for the
guest, never imported here.
"""
