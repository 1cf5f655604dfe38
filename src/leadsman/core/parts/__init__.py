"""What joins an app, one file for each part. `leadsman.core.wiring.build` has the list, and imports a part for the apps
that want it. A part follows what it needs: the event bus, the roster of devices, the stages of the app's life,
topics."""
