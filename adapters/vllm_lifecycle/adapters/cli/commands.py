"""The commands: options and help, nothing else. Each turns its options into stages (see `services`) and hands them to `run`.

Help is plain text that teaches by examples; it is shown without importing an engine, z3, numpy or vLLM.
"""

from __future__ import annotations

from typing import Annotated

import typer

from vllm_lifecycle.adapters.cli.run import Format, Plain, finish

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result on standard output.")]
PlainOption = Annotated[Plain, typer.Option("--format", help="How to print the result on standard output.")]
HtmlOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Also write a page with a picture of each counterexample."),
]
WriteOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FORM=FILE", help="Also write junit, sarif or markdown; may be given more than once."
    ),
]
DetailsOption = Annotated[bool, typer.Option("--details", "-d", help="A row for each claim.")]
TracesOption = Annotated[
    bool, typer.Option("--traces", help="Show the shortest trace of each claim that has one.")
]
SeedsOption = Annotated[int, typer.Option(help="Prove each obligation under that many solver seeds.")]
TimeoutOption = Annotated[float, typer.Option(help="Seconds for one obligation, then it is not established.")]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """The request and KV-block lifecycles of an LLM serving scheduler: specified, proved, explored, held against vLLM.

    \b
    vllm-lifecycle check                     everything: proof, exploration, mutants
    vllm-lifecycle check vllm                drive the installed vLLM's own Scheduler and judge it
    vllm-lifecycle check my.pkg:MyScheduler  the same for your scheduler class
    vllm-lifecycle explain RUNNING           what a state, action or property means

    \b
    Exit codes: 0 everything holds, 1 usage or internal error, 2 refuted (a counterexample is shown),
    3 not established (a bound, a time-out or Ctrl-C came first).
    Add --debug to any command to see the traceback of an error.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def check(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="`vllm`, or a scheduler class as pkg.mod:Class. Without: the specification.",
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="What to explore; may be given more than once. See `explore`."),
    ] = None,
    contract: Annotated[
        str | None,
        typer.Option(
            help="TARGET only: `legal` plays a well-behaved world (default), `hostile` also late, repeated and foreign signals."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="TARGET only: time for the search (default 60).")
    ] = None,
    connector: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="TARGET only: your KV connector, pkg.mod:Class, answers itself."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="TARGET only: seed of the random part (default 0).")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="TARGET only: processes that search at once (default 2, or 1 on one processor)."),
    ] = None,
    hypothesis: Annotated[
        int | None,
        typer.Option(
            metavar="EXAMPLES",
            help="TARGET only: let Hypothesis draw and shrink that many sequences a scope (extra `test`).",
        ),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="TARGET only: write each finding as a pytest and as JSON."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="TARGET only: fail only on findings that are not in FILE."),
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="TARGET only: add what is found to the baseline.")
    ] = False,
    expect: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="TARGET only: findings of FILE are known; say which did not show."),
    ] = None,
    seeds: SeedsOption = 3,
    timeout: TimeoutOption = 30.0,
    details: DetailsOption = False,
    form: FormatOption = Format.text,
    html: HtmlOption = None,
    write: WriteOption = None,
) -> None:
    """Check everything, or a real scheduler class.

    Without TARGET the specification is checked: every property proved for any number of requests and blocks,
    explored exhaustively at small scopes, and every known defect refuted as a variant of the specification.

    With TARGET a real scheduler is built on the CPU with a tiny configuration (no GPU, no model), driven through
    its public API, and judged by the same properties after every call. This needs vLLM in the same environment.

    \b
    Examples
      vllm-lifecycle check
      vllm-lifecycle check --scope 2x2 --details
      vllm-lifecycle check vllm --seconds 60 --html report.html
      vllm-lifecycle check my.pkg:MyScheduler --contract hostile --format json
      vllm-lifecycle check vllm --hypothesis 500 --scope pressure
      vllm-lifecycle check my.pkg:MyScheduler --save findings --baseline known.json
    """
    from vllm_lifecycle.adapters.cli import findings, services, targets

    if target is None:
        targets.reject_target_options(
            contract=contract,
            seconds=seconds,
            seed=seed,
            connector=connector,
            jobs=jobs,
            hypothesis=hypothesis,
            save=save,
            baseline=baseline,
            update_baseline=update_baseline or None,
            expect=expect,
        )
        stages = services.check_everything(
            tuple(scope or ()), services.ProofOptions(seeds=seeds, timeout=timeout)
        )
    else:
        options = targets.TargetOptions(
            target,
            tuple(scope or ()),
            contract or "legal",
            60.0 if seconds is None else seconds,
            seed or 0,
            connector,
            findings.Keeping(save, baseline, update_baseline, expect),
            hypothesis,
            jobs,
        )
        stages = targets.check_target(options)
    finish(
        "check" if target is None else f"check {target}",
        stages,
        form,
        details=details,
        html=html,
        write=write,
    )


@app.command()
def replay(
    file: Annotated[str, typer.Argument(help="A finding that `check TARGET --save DIR` wrote (the .json).")],
    on: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="In the environment of vllm==X or vllm-omni==X.")
    ] = None,
    form: FormatOption = Format.text,
    html: HtmlOption = None,
    write: WriteOption = None,
) -> None:
    """Play a saved finding again, here or on another release.

    Prints the sequence, what each call changed, and whether the property falls. Another release runs in its own
    environment, which `scripts/vllm-env` makes in .venvs (VLLM_LIFECYCLE_ENVS names another folder).

    \b
    Examples
      vllm-lifecycle replay findings/a_finding.json
      vllm-lifecycle replay findings/a_finding.json --on vllm==0.13.0
    """
    from vllm_lifecycle.adapters.cli import replay as saved

    if on is not None:
        more = ["--format", form.value, *(f"--write={w}" for w in write or ())]
        code = saved.elsewhere(file, on, [*more, *(["--html", html] if html else [])])
        if code is not None:
            raise typer.Exit(code)
    finish(f"replay {file}", saved.replay(file), form, details=False, traces=True, html=html, write=write)


@app.command()
def prove(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROPERTY]...", help="Only these properties.")
    ] = None,
    seeds: SeedsOption = 3,
    cores: Annotated[
        bool, typer.Option("--cores", help="Say which invariants each obligation needs.")
    ] = False,
    cvc5: Annotated[
        bool, typer.Option("--cvc5", help="Ask cvc5 too (extra `cvc5`); both must agree.")
    ] = False,
    timeout: TimeoutOption = 30.0,
    details: DetailsOption = False,
    form: FormatOption = Format.text,
    html: HtmlOption = None,
    write: WriteOption = None,
) -> None:
    """Prove the properties for any size.

    Any number of requests, blocks, transfers and steps: each action must keep each invariant, one small obligation
    each, given to z3. What fails comes with a minimal counterexample to induction; `unknown` never counts as proved.

    \b
    Examples
      vllm-lifecycle prove --seeds 5
      vllm-lifecycle prove a_free_block_is_in_no_table --cores
    """
    from vllm_lifecycle.adapters.cli import services

    options = services.ProofOptions(tuple(names or ()), seeds, cores, cvc5, timeout)
    finish("prove", services.prove(options), form, details=details, html=html, write=write)


@app.command()
def explore(
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="Requests x blocks, as 3x3, or a named scope; may be repeated."),
    ] = None,
    features: Annotated[str | None, typer.Option(help="Only these features, separated by commas.")] = None,
    modules: Annotated[
        str | None, typer.Option(help="Only the state of these modules, separated by commas.")
    ] = None,
    symmetry: Annotated[
        bool, typer.Option("--symmetry/--no-symmetry", help="Take states that differ by names only as one.")
    ] = True,
    max_states: Annotated[
        int | None, typer.Option(help="Stop after that many states: not established.")
    ] = None,
    max_memory: Annotated[
        str, typer.Option(help="Stop at that much memory, as 500MB: not established.")
    ] = "4GB",
    liveness: Annotated[
        bool, typer.Option("--liveness", help="Check progress properties too (no symmetry).")
    ] = False,
    details: DetailsOption = False,
    traces: TracesOption = False,
    form: FormatOption = Format.text,
    html: HtmlOption = None,
    write: WriteOption = None,
) -> None:
    """Explore every reachable state of a small scope.

    A violation comes with its shortest trace; a search that was cut off is never taken for complete.

    \b
    Examples
      vllm-lifecycle explore --scope 2x3
      vllm-lifecycle explore --scope 3x3 --max-memory 4GB
      vllm-lifecycle explore --scope 2x2 --liveness --details
    """
    from vllm_lifecycle.adapters.cli import services

    options = services.ExploreOptions(
        tuple(scope or ()),
        services.names_of(features),
        services.names_of(modules),
        symmetry,
        max_states,
        services.bytes_of(max_memory),
        liveness,
    )
    finish("explore", services.explore(options), form, details=details, traces=traces, html=html, write=write)


@app.command()
def mutants(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these mutants.")
    ] = None,
    traces: TracesOption = False,
    form: FormatOption = Format.text,
    html: HtmlOption = None,
    write: WriteOption = None,
) -> None:
    """Refute every known defect.

    Each defect is a variant of the specification, and the property named for it must fall. Prints which property
    kills which defect, and how long the shortest trace to the violation is.

    \b
    Examples
      vllm-lifecycle mutants
      vllm-lifecycle mutants abort_frees_receiving_blocks
    """
    from vllm_lifecycle.adapters.cli import services

    finish(
        "mutants",
        services.mutants(tuple(names or ())),
        form,
        details=True,
        traces=traces or bool(names),
        html=html,
    )


@app.command()
def explain(
    name: Annotated[
        str | None, typer.Argument(help="A property, action, state, variable, witness or catalogue id.")
    ] = None,
    form: PlainOption = Plain.text,
) -> None:
    """Say what a property, action or state means.

    In plain words, read off the specification; without NAME, all names are listed.

    \b
    Examples
      vllm-lifecycle explain
      vllm-lifecycle explain a_free_block_is_in_no_table
      vllm-lifecycle explain WAITING_FOR_REMOTE_KVS
      vllm-lifecycle explain P1
    """
    from vllm_lifecycle.adapters.cli import explain as words
    from vllm_lifecycle.adapters.cli import render
    from vllm_lifecycle.adapters.cli.run import emit

    entries = words.contents() if name is None else words.entries(name)
    emit(render.entries_to_json(entries) if form is Plain.json else render.entries_to_text(entries))


@app.command()
def version(form: PlainOption = Plain.text) -> None:
    """Print the versions in use."""
    from vllm_lifecycle.adapters.cli import render, services
    from vllm_lifecycle.adapters.cli.run import emit

    found = services.versions()
    emit(
        render.dump(found)
        if form is Plain.json
        else render.table(list(found.items()), ("package", "version"))
    )
