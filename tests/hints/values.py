"""Values of flags for tests: what is allowed with its canonical form, what is not, and strategies for hostile text."""

from __future__ import annotations

from hypothesis import strategies as st

from slurm_soda.slurm_ext.hints.flags import CATEGORIES, CHECKPOINT_SIGNALS, FLAGS, Hints

ALLOWED = [
    ("category", "cv", "cv"),
    ("category", "NLP", "nlp"),
    ("model", "resnet50", "resnet50"),
    ("model", "meta-llama/Llama-2_7b+x.1", "meta-llama/Llama-2_7b+x.1"),
    ("model", "A" * 64, "A" * 64),
    ("batch_size", "1", "1"),
    ("batch_size", "9999999", "9999999"),
    ("iterations", "999999999999", "999999999999"),
    ("pipelined", "yes", "yes"),
    ("large_weights", "YES", "yes"),
    ("heavy_preprocessing", "yes", "yes"),
    ("share", "No", "no"),
    ("max_slowdown", "1", "1"),
    ("max_slowdown", "1.50", "1.5"),
    ("max_slowdown", "2.000", "2"),
    ("max_slowdown", "10", "10"),
    ("max_slowdown", "10.0", "10"),
    ("max_slowdown", "99.999", "99.999"),
    ("gpu_memory", "800", "800M"),
    ("gpu_memory", "800M", "800M"),
    ("gpu_memory", "12G", "12288M"),
    ("gpu_memory", "2t", "2097152M"),
    ("gpu_memory", "9999999", "9999999M"),
    ("accumulates", "Yes", "yes"),
    ("checkpoint", "USR1", "USR1"),
    ("checkpoint", "SIGTERM@30", "TERM@30"),
    ("checkpoint", "sigusr2@90s", "USR2@90"),
    ("checkpoint", "int@2m", "INT@120"),
    ("checkpoint", "XCPU@60m", "XCPU@3600"),
    ("service", "answers-7", "answers-7"),
    ("service", "0", "0"),
    ("service", "a" * 40, "a" * 40),
]

REFUSED = [
    *(
        (flag.key, text)
        for flag in FLAGS
        for text in ("", " ", "\n", "\x1b[31m", "yes\n", "no ", "ü", "\udcff", "a,b=c")
    ),
    ("category", "vision"),
    ("category", "cv nlp"),
    ("model", "-resnet"),
    ("model", "res net"),
    ("model", "a=b"),
    ("model", "a,b"),
    ("model", "$(id)"),
    ("model", "A" * 65),
    ("model", "A" * 5000),
    ("batch_size", "0"),
    ("batch_size", "064"),
    ("batch_size", "-1"),
    ("batch_size", "+1"),
    ("batch_size", "1e3"),
    ("batch_size", "64; rm -rf /"),
    ("batch_size", "10000000"),
    ("batch_size", "٣"),
    ("iterations", "1000000000000"),
    ("iterations", "9" * 400),
    ("pipelined", "no"),
    ("share", "maybe"),
    ("share", "yesno"),
    ("max_slowdown", "0.9"),
    ("max_slowdown", "0"),
    ("max_slowdown", "1."),
    ("max_slowdown", ".5"),
    ("max_slowdown", "1.2345"),
    ("max_slowdown", "1.2.3"),
    ("max_slowdown", "100"),
    ("max_slowdown", "01"),
    ("max_slowdown", "nan"),
    ("max_slowdown", "1,5"),
    ("gpu_memory", "0"),
    ("gpu_memory", "0G"),
    ("gpu_memory", "G"),
    ("gpu_memory", "12K"),
    ("gpu_memory", "12GB"),
    ("gpu_memory", "1.5G"),
    ("gpu_memory", "10000000"),
    ("gpu_memory", "10T"),
    ("gpu_memory", "12 G"),
    ("checkpoint", "SIGFOO"),
    ("checkpoint", "SIG"),
    ("checkpoint", "SIGSIGTERM"),
    ("checkpoint", "KILL"),
    ("checkpoint", "STOP@10"),
    ("checkpoint", "10"),
    ("checkpoint", "USR1@"),
    ("checkpoint", "USR1@0"),
    ("checkpoint", "USR1@s"),
    ("checkpoint", "USR1@1h"),
    ("checkpoint", "USR1@3601"),
    ("checkpoint", "USR1@61m"),
    ("checkpoint", "USR1@10@20"),
    ("checkpoint", "@10"),
    ("service", "Answers"),
    ("service", "-answers"),
    ("service", "my_service"),
    ("service", "a/b"),
    ("service", "a" * 41),
]

any_text = st.binary(max_size=60).map(lambda raw: raw.replace(b"\0", b"0").decode("utf-8", "surrogateescape"))
"""Any bytes but NUL, as Python reads them from Slurm."""

near_values = st.one_of(
    any_text,
    st.text(st.sampled_from("0123456789.@smMGTgtSIGUR1yesno cv-+/_A\n"), max_size=16),
    st.from_regex(r"[0-9]{1,13}[MGTmgtK]?", fullmatch=True),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{0,4})?", fullmatch=True),
    st.from_regex(r"(SIG|sig)?(USR1|term|HUP|KILL)(@[0-9]{0,5}[smh]?)?", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9._+/-]{0,66}", fullmatch=True),
)
"""Text on both sides of every rule's border."""

some_hints = st.builds(
    Hints,
    category=st.none() | st.sampled_from(CATEGORIES),
    model=st.none() | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,63}", fullmatch=True),
    batch_size=st.none() | st.integers(1, 9_999_999),
    iterations=st.none() | st.integers(1, 999_999_999_999),
    pipelined=st.booleans(),
    large_weights=st.booleans(),
    heavy_preprocessing=st.booleans(),
    share=st.none() | st.booleans(),
    max_slowdown=st.none() | st.integers(1000, 99_999).map(lambda thousandths: thousandths / 1000),
    gpu_memory_mib=st.none() | st.integers(1, 9_999_999),
    accumulates=st.booleans(),
    service=st.none() | st.from_regex(r"[a-z0-9][a-z0-9-]{0,39}", fullmatch=True),
).flatmap(
    lambda hints: st.builds(
        lambda signal, grace: Hints(
            **{
                **{name: getattr(hints, name) for name in hints.__slots__},
                "checkpoint_signal": signal,
                "checkpoint_grace_s": None if signal is None else grace,
            }
        ),
        st.none() | st.sampled_from(CHECKPOINT_SIGNALS),
        st.none() | st.integers(1, 3600),
    )
)
"""All hints that can be written."""

comments = st.lists(
    st.sampled_from([" ", "  ", "soda:1:share=yes", "soda:22:", "soda:x:1", "soda:", "a", "1:share=yes"]) | any_text,
    max_size=6,
).map("".join)
"""Comments, often with something like a tag in them."""
