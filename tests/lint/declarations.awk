# Prints a header with the bodies of its functions taken away, for tools that look at what includes it.
skip { if (/^}/) skip = 0; next }
/^#define SPIPE_PRIV_LOCAL / { print "#define SPIPE_PRIV_LOCAL extern"; next }
/^(SPIPE_API|SPIPE_API_RESULT|SPIPE_PRIV_LOCAL|SPIPE_PRIV_RARE|SPIPE_PRIV_OFTEN) / { signature = 1 }
signature && /[;}]$/ { signature = 0 }
signature && / \{$/ { sub(/ \{$/, ";"); signature = 0; skip = 1 }
{ print }
