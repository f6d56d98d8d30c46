"""Where the world touches the specification: vLLM, the command line, files. Nothing else imports these."""
