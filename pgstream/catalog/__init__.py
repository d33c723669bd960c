"""What exists and who may: records, models, migrations, snapshot."""
