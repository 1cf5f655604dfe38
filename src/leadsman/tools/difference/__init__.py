"""What changes for the consumers of an app when its code, its settings or its environment do."""
