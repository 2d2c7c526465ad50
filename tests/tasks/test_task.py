"""Tasks say in one message what is wrong with them, and make what they name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, ConfigError, StorageError
from nncfx.tasks import read_task

Write = Callable[..., Path]


def test_a_config_makes_model_and_loaders(write: Write) -> None:
    model = {"factory": "net.py:model", "arguments": {"width": 4}}
    task = read_task(write(model=model, data="net.py:three_loaders", export={}))
    assert task.model()[0].out_channels == 4
    assert not task.model().training
    assert task.data.test is not None
    assert task.example_inputs.shape == (32, 1, 8, 8)
    assert task.criterion is nn.functional.cross_entropy


def test_a_python_file_says_the_same_as_a_config(write: Write, tmp_path: Path) -> None:
    write()
    path = tmp_path / "whole.py"
    path.write_text(
        (tmp_path / "net.py").read_text()
        + "\ndef criterion(outputs, targets): return F.cross_entropy(outputs, targets) * 2\n"
        "def metric(model, loader): return 0.25\n"
        "def train(): return {'epochs': 3}\n"
        "compression = {'algorithm': 'magnitude_sparsity'}\n"
        "export = {'benchmark': False}\n"
    )
    task = read_task(path)
    assert task.config.train.epochs == 3
    assert task.config.compression[0].algorithm == "magnitude_sparsity"
    assert task.metric(task.model(), []) == 0.25
    scores, targets = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    expected = 2 * nn.functional.cross_entropy(scores, targets)
    assert torch.equal(task.criterion(scores, targets), expected)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({}, "nothing to do"),
        ({"export": {}, "data": None, "model": None}, "the key 'model' is missing"),
        ({"data": None, "compression": {"algorithm": "quantization"}}, r"data: the section"),
        ({"export": {"target": "onxruntime"}}, r"export.target: .*'onnxruntime'"),
        ({"export": {"tarjet": "x"}}, r"export.tarjet: unknown key.*Did you mean 'target'"),
        ({"export": {}, "train": {"criterion": "cross_entrpy"}}, "Did you mean 'cross_entropy'"),
        ({"export": {}, "model": "net.py:modl"}, "has no 'modl'. Did you mean 'model'"),
        ({"export": {}, "model": "net.py"}, "names no Python object"),
        ({"export": {}, "model": "none.py:model"}, "there is no file"),
        ({"export": {}, "model": "no.such.package:model"}, "cannot be imported"),
        ({"export": {}, "model": "net.py:no_model"}, "returned a int"),
        ({"export": {}, "model": "net.py:broken"}, "raised KeyError: 'weights of the moon'"),
        ({"export": {}, "data": "net.py:only_training"}, "'validation': ..."),
        ({"export": {}, "metric": "net.py:CODE"}, "has no 'CODE'"),
    ],
)
def test_a_fault_is_told_with_its_key(write: Write, sections: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):  # noqa: PT012 (whichever is asked first)
        task = read_task(write(**sections))
        task.model()
        _ = task.data, task.criterion, task.metric


def test_files_of_code_that_are_not_there_are_all_told_when_the_config_is_read(
    write: Write,
) -> None:
    path = write(export={}, model="no.py:model", data="gone.py:data", metric="net.py:twice")
    with pytest.raises(ConfigError, match=r"2 faults") as raised:
        read_task(path)
    for key, file in (("data.factory", "gone.py"), ("model.factory", "no.py")):
        told = f"{key}: there is no file '{path.parent / file}'. Check the path."
        assert told in str(raised.value)


def test_a_budget_of_all_accuracy_is_told_when_the_config_is_read(write: Write) -> None:
    search = {"objective": "macs", "schemes": {"name": "Prune"}, "eps": 2}
    with pytest.raises(ConfigError, match=r"search.eps: 2 of an accuracy, .*Write 0.02"):
        read_task(write(search=search))
    read_task(write(search=search, metric="net.py:twice"))  # of any other metric


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("two_batches", "first batch of train is a Tensor; a batch is a pair"),
        ("named_batches", "first batch of train is a dict with the keys 'x', 'y'; a batch is a"),
        ("once", "train is a list_iterator, which is used up after one pass"),
    ],
)
def test_loaders_that_give_no_pairs_again_and_again_are_refused(
    write: Write, data: str, message: str
) -> None:
    task = read_task(write(export={}, data=f"net.py:{data}"))
    with pytest.raises(ArgumentError, match=message):
        _ = task.example_inputs


def test_keys_that_a_search_would_not_read_are_refused(
    write: Write, search: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"train.epochs: a search trains by"):
        read_task(write(search=search, train={"epochs": 7}))
    with pytest.raises(ConfigError, match="run does one of them"):
        read_task(write(search=search, compression={"algorithm": "quantization"}))


def test_a_budget_that_no_run_would_keep_is_refused(write: Write) -> None:
    budget = {"maximal_absolute_accuracy_degradation": 0.001, "maximal_total_epochs": 4}
    wanted = {"mode": "early_exit", "params": budget}
    with pytest.raises(ConfigError, match=r"accuracy_aware_training: a run trains.*'search'"):
        read_task(write(compression={"algorithm": "quantization"}, accuracy_aware_training=wanted))


def test_weights_come_from_a_file_of_their_own(write: Write, tmp_path: Path) -> None:
    path = write(model={"factory": "net.py:model", "weights": "w.pt"}, export={})
    zeros = {key: one * 0 for key, one in read_task(write(export={})).model().state_dict().items()}
    state = {f"module.{key}": one for key, one in zeros.items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pt")
    write(model={"factory": "net.py:model", "weights": "w.pt"}, export={})
    assert not read_task(path).model()[0].weight.any()
    torch.save({"other": torch.zeros(1)}, tmp_path / "w.pt")
    with pytest.raises(StorageError, match=r"missing in the file: 0.weight(.|\n)*other"):
        read_task(path).model()
    (tmp_path / "w.pt").write_bytes(b"no weights")
    with pytest.raises(
        StorageError, match=r"holds no weights.*\(it is not a file of torch.save\)"
    ):
        read_task(path).model()
    torch.save(zeros, tmp_path / "w.pt")
    whole = (tmp_path / "w.pt").read_bytes()
    (tmp_path / "w.pt").write_bytes(whole.replace(b"q\x03", b"q\x04", 1))  # a place in the pickle
    with pytest.raises(StorageError, match="holds no weights"):
        read_task(path).model()
    torch.save(nn.Linear(1, 1), tmp_path / "w.pt")
    with pytest.raises(StorageError, match=r"\(it is a pickle of objects, such as torch.nn.mod"):
        read_task(path).model()


OBJECTIVE = """
from nncfx.objectives import Maximize, Minimize

def kernels(model):
    return sum(1 for one in model.modules() for _ in one.parameters(recurse=False))

fewest, most = Minimize(kernels), Maximize(kernels, name="most kernels")
"""


def test_an_objective_of_ones_own_is_named_by_its_file(
    write: Write, search: dict[str, Any], tmp_path: Path
) -> None:
    path = write(search=search | {"objective": "mine.py:most"})
    (tmp_path / "mine.py").write_text(OBJECTIVE)
    found = read_task(path).objective
    assert (found.name, found.maximize) == ("most kernels", True)
    assert read_task(write(search=search)).objective is None
    bare = read_task(write(search=search | {"objective": "mine.py:kernels"}))
    with pytest.raises(ConfigError, match=r"kernels' is a function.*Write objective = Min"):
        _ = bare.objective


def test_a_python_file_has_its_objective_at_the_top(
    write: Write, search: dict[str, Any], tmp_path: Path
) -> None:
    write()
    path = tmp_path / "own.py"
    code = (tmp_path / "net.py").read_text() + OBJECTIVE + "objective = fewest\n"
    del search["objective"]
    path.write_text(f"{code}search = {search!r}\n")
    found = read_task(path).objective
    assert (found.name, found.maximize) == ("kernels", False)
    alone = tmp_path / "alone.py"
    alone.write_text(code)
    with pytest.raises(ConfigError, match="has no 'search' that would improve it"):
        read_task(alone)
    twice = tmp_path / "twice.py"
    twice.write_text(f"{code}search = {search | {'objective': 'macs'}!r}\n")
    with pytest.raises(ConfigError, match="defines 'objective', and 'search' says 'macs'"):
        read_task(twice)


def test_names_that_no_code_is_needed_to_check_are_faults_together(
    write: Write, search: dict[str, Any]
) -> None:
    sections = {"search": search | {"runtime": "onxruntime"}, "metric": "accurcy"}
    with pytest.raises(ConfigError) as refused:
        read_task(write(**sections))
    assert "There is no runtime 'onxruntime'" in str(refused.value)
    assert "'accurcy' names no Python object. Did you mean 'accuracy'?" in str(refused.value)
    with pytest.raises(ConfigError, match=r"functional has no 'crossentropy'.*'cross_entropy'"):
        read_task(write(search=search, train={"criterion": "crossentropy"}))


def test_what_no_code_has_to_run_for_is_told_when_the_config_is_read(
    write: Write, search: dict[str, Any]
) -> None:
    choices = {"name": "Quantize", "choices": {"dtype": ["float16", "flaot16"]}}
    schemes = [{"name": "Quantize", "dtype": "float17"}, choices]
    with pytest.raises(ConfigError) as refused:
        read_task(write(search=search | {"schemes": schemes}))
    assert re.findall(r"(search\S+): There is no floating dtype '(\w+)'", str(refused.value)) == [
        ("search.schemes[0]", "float17"),
        ("search.schemes[1]", "flaot16"),
    ]
    model = {"factory": "net.py", "weights": "no.pt"}
    with pytest.raises(ConfigError, match=r"(?s)3 faults.*data.f.*model.factory: .*no.pt'. Check"):
        read_task(write(model=model, data="none", export={}))


@pytest.mark.parametrize("file", ["model.txt", "../x.onnx", "/etc/x/model.onnx", "dense.onnx"])
def test_the_exported_file_is_one_of_its_own_in_the_folder_of_the_run(
    write: Write, file: str
) -> None:
    with pytest.raises(ConfigError, match=r"export.file: .*such as 'model.onnx'"):
        read_task(write(export={"file": file}))
    read_task(write(export={"file": "onnx/mine.onnx"}))
