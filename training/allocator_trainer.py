"""AllocatorTrainer: transformers' Trainer with our loss, resumable bit for bit, whose checkpoints hold what is trained."""

import json
import math
import os
import shutil
import zipfile
from pathlib import Path

import torch
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from training.allocator import check_parameters, fill_parameters, read_tensors, write_tensors
from training.allocator_batches import AllocatorBatches
from training.conditioning import condition, whitening
from training.run_folder import cut_after

TRAINED = "trained.safetensors"
METRICS = "metrics.jsonl"
# Trainer's; a sharded run has a folder optimizer_0, several processes have rng_state_0.pth and so on.
_STATES = ("optimizer.pt", "scheduler.pt", "rng_state.pth")
_INSTEAD = "delete this checkpoint to go on from the one before, or pass another --out"
_OF_THE_PROCESS = ("epoch", "train_loss")  # of a log line; the data have no end, so that no epoch is meant
_UNDECAYED = ("gate", "glimpse", "bias", "gain", "offset")


class MetricsFile(TrainerCallback):
    """Writes every log line to a JSON-lines file, without what Trainer counts from a resumed run's own beginning. Such a run first
    takes out the lines after its checkpoint."""

    def __init__(self, path: Path, start: int):
        self.path, self.start = path, start

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            cut_after(self.path, self.start)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with self.path.open("a") as file:
                said = {name: value for name, value in (logs or {}).items() if name not in _OF_THE_PROCESS}
                file.write(json.dumps({"step": state.global_step, **said}) + "\n")


class LogsAtCheckpoints(TrainerCallback):
    """Has every checkpoint begin a new mean of the log, so that a resumed run writes what the whole one wrote, as often as it is
    asked to: the checkpoint that it begins from holds how often the run before did."""

    def on_train_begin(self, args, state, control, **kwargs):
        state.logging_steps, state.save_steps = args.logging_steps, args.save_steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log |= control.should_save


class FiniteGradients(TrainerCallback):
    """Stops before a step whose gradient is not finite, so that no parameter is lost."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        # clipping came before, and has made NaN or 0 of others: which of them it came from can't be told
        if any(p.grad is not None and not torch.isfinite(p.grad).all() for p in model.parameters()):
            raise FloatingPointError(f"the gradient {_stopped(args.output_dir, state.global_step)}")


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    tensor = parameter.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _stopped(out: str, step: int) -> str:
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    return (
        f"is NaN or infinite in step {step + 1}; training has stopped, the last good checkpoint is {last or 'none yet'}; "
        "look at the data of this step, or begin again with a lower --learning-rate and another --out"
    )


def read_checkpoint(learner: nn.Module, checkpoint: str | Path) -> tuple[dict[str, torch.Tensor], int]:
    """What a checkpoint's folder holds of what an `AllocatorLearner` trains, and its step.

    Raises:
        OSError, ValueError: the checkpoint is damaged, of another base or scorer, or holds other parameters.
    """
    try:
        tensors, metadata = read_tensors(Path(checkpoint) / TRAINED)
    except ValueError as error:
        raise ValueError(f"{error}, or {_INSTEAD}") from error
    for name, own in (("base", learner.base["base"]), ("scorer", learner.scorer_name)):
        if metadata.get(name) != own:
            raise ValueError(
                f"{checkpoint} is of {name} {metadata.get(name)}, and this run has {name} {own}; resume with what the run began "
                "with, or pass another --out"
            )
    check_parameters(learner, tensors, checkpoint)
    try:
        step = json.loads((Path(checkpoint) / "trainer_state.json").read_text())["global_step"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{checkpoint}/trainer_state.json is damaged ({error}); {_INSTEAD}") from error
    return tensors, step


def check_resumable(checkpoint: str | Path, processes: int = 1) -> None:
    """Refuses a checkpoint that `processes` can't go on from to the same result.

    Raises:
        ValueError: the state of the optimiser, of the schedule or of the random numbers is missing or damaged, or the run had
            another number of processes, each of which drew its share of the pages.
    """
    held = [path.name for path in Path(checkpoint).iterdir()]
    lacking = [name for name in _STATES if not any(other.startswith(name.split(".")[0]) for other in held)]
    if lacking:
        raise ValueError(
            f"{checkpoint} has no {lacking[0]}, without which a resumed run comes to another result; put it back, or {_INSTEAD}"
        )
    starts = tuple(name.split(".")[0] for name in _STATES)
    states = [path for path in Path(checkpoint).iterdir() if path.name.startswith(starts) and path.is_file()]
    damaged = [path.name for path in states if not zipfile.is_zipfile(path)]  # as torch.save writes
    if damaged:
        raise ValueError(f"{checkpoint}/{damaged[0]} is damaged; {_INSTEAD}")
    began = sum(name.startswith("rng_state") for name in held)
    if began != processes:
        raise ValueError(
            f"{checkpoint} is of a run of {began} processes, and this one has {processes}, which would draw pages that were "
            f"trained on before; resume with `accelerate launch --num_processes {began}`, or begin another --out from its "
            "allocator"
        )


def restore(learner: nn.Module, checkpoint: str | Path) -> int:
    """Fills what the learner trains from a checkpoint's folder; returns its step. Raises as `read_checkpoint`."""
    tensors, step = read_checkpoint(learner, checkpoint)
    fill_parameters(learner, tensors, checkpoint)
    return step


def fill_states(optimizer: torch.optim.AdamW) -> None:
    """Gives each parameter that no gradient has reached yet the state that AdamW begins with: a sharded checkpoint is read back
    only where every parameter has one."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not optimizer.state.get(parameter):
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[parameter] = {"step": torch.tensor(0.0), **moments}


class AllocatorTrainer(Trainer):
    """Trains an `AllocatorLearner` on the batches of a source.

    Args:
        learner: the model.
        args: `TrainingArguments` with `max_steps`.
        source: has `example(index)`.
        collator: `AllocatorCollator`.
        gate_factor: learning rate of gates (scalars that start at zero, behind which everything else waits) over the rest's.
        own_source: whether the source holds what this process alone trains on, and others hold the rest.
        whiten: whether what reads the question is learned behind a `whitening` of the base's embeddings.
    """

    def __init__(
        self, learner, args, source, collator, gate_factor: float = 10.0, own_source: bool = False, whiten: bool = False
    ):  # fmt: skip
        # before the base is sharded
        self.whitened = whitening(learner.model.get_input_embeddings().weight) if whiten else None
        super().__init__(model=learner, args=args, callbacks=[FiniteGradients(), LogsAtCheckpoints()])
        self.learner, self.source, self.collator, self.gate_factor = learner, source, collator, gate_factor
        self.own_source = own_source
        self.model_accepts_loss_kwargs = False  # forward's keyword arguments are the batch
        self.start_step = 0
        self._sums: dict[str, list] = {}

    def train(self, resume_from_checkpoint: str | None = None, **kwargs):
        """As `Trainer.train`; a checkpoint is a folder that this trainer wrote. Raises as `restore`."""
        if resume_from_checkpoint:
            self.start_step = restore(self.learner, resume_from_checkpoint)
        self.add_callback(MetricsFile(Path(self.args.output_dir) / METRICS, self.start_step))
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def get_train_dataloader(self) -> DataLoader:
        """Batches from the step on that is resumed; each process draws its own."""
        args = self.args
        batches = AllocatorBatches(
            self.source,
            self.collator,
            args.per_device_train_batch_size,
            start=self.start_step * args.gradient_accumulation_steps,
            rank=args.process_index,
            processes=args.world_size,
            own_source=self.own_source,
        )
        # A generator of its own: starting to read must not move the random state that a resumed run has restored.
        own = torch.Generator().manual_seed(args.seed)
        return DataLoader(batches, batch_size=None, num_workers=args.dataloader_num_workers, generator=own)

    def create_optimizer(self, model=None):
        """AdamW; gates learn `gate_factor` times as fast; gates, biases, norms and marks of views do not decay; see `condition`."""
        if self.optimizer is None:
            groups: dict[tuple[float, float], list] = {}
            for name, parameter in (self.model if model is None else model).named_parameters():
                if parameter.requires_grad:
                    last = name.rsplit(".", 1)[-1]
                    rate = self.args.learning_rate * (self.gate_factor if last == "gate" else 1.0)
                    kept = last in _UNDECAYED or any("norm" in part for part in name.split(".")[-2:])
                    groups.setdefault((rate, 0.0 if kept else self.args.weight_decay), []).append(parameter)
            self.optimizer = torch.optim.AdamW(
                [{"params": ps, "lr": rate, "weight_decay": decay} for (rate, decay), ps in groups.items()],
                betas=(0.9, 0.98),
            )
            if self.whitened is not None:
                condition(self.optimizer, self.learner.scorer, self.whitened)
        return self.optimizer

    def _get_learning_rate(self) -> float:
        # Trainer logs the first group's, which is that of the gates
        first = self.optimizer.param_groups[0].get("initial_lr", self.args.learning_rate)
        return super()._get_learning_rate() * self.args.learning_rate / first

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """The weighted sum of the signals.

        Raises:
            FloatingPointError: it is NaN or infinite.
        """
        self.learner.progress = self.state.global_step / max(1, self.state.max_steps)
        outputs = model(**inputs)
        loss = outputs["loss"]
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the loss {_stopped(self.args.output_dir, self.state.global_step)}")
        for name, value in outputs.items():
            if name != "loss":
                self._sums.setdefault(name, []).append(value.float())
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *args, **kwargs):
        """As `Trainer.log`, with the mean of each signal since the last line, over all processes as the loss is."""
        if "loss" in logs:
            own = {name: torch.stack(values).tolist() for name, values in self._sums.items()}
            found = gather_object([own])
            for name in dict.fromkeys(name for each in found for name in each):
                values = [value for each in found for value in each.get(name, [])]
                logs[name] = sum(values) / len(values)
            self._sums = {}
        super().log(logs, *args, **kwargs)

    def trained_tensors(self) -> dict[str, torch.Tensor]:
        """What is trained, by name, whole; with sharded parameters every process must call this."""
        return {name: _whole(p) for name, p in self.learner.named_parameters() if p.requires_grad}

    def scorer_tensors(self) -> dict[str, torch.Tensor]:
        """The scorer, trained or left as it was, by name, whole; every process must call this too."""
        return {name: _whole(tensor) for name, tensor in self.learner.scorer.state_dict().items()}

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False):
        """Writes what is trained to `TRAINED` in the folder."""
        tensors = self.trained_tensors()
        if self.args.should_save:
            metadata = {**self.learner.base, "scorer": self.learner.scorer_name}
            write_tensors(Path(output_dir or self.args.output_dir) / TRAINED, tensors, metadata)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        """`train` has done it, before the model was sharded."""

    def _save_checkpoint(self, model, trial):
        # In a folder of its own first: a checkpoint is there whole, or not at all.
        out, scratch = Path(self.args.output_dir), Path(self.args.output_dir) / "unfinished"
        folder = f"checkpoint-{self.state.global_step}"
        try:
            self.args.output_dir = str(scratch)
            if self.is_fsdp_enabled:
                fill_states(self.optimizer)
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(scratch, ignore_errors=True)
            self.args.output_dir = str(out)
            last = get_last_checkpoint(str(out))
            raise OSError(
                f"the checkpoint of step {self.state.global_step} could not be written to {out} ({error}); training has "
                f"stopped, the last good checkpoint is {last or 'none yet'}; free some space and "
                + ("resume" if last else "begin again")
            ) from error
        finally:
            self.args.output_dir = str(out)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            shutil.rmtree(out / folder, ignore_errors=True)
            os.replace(scratch / folder, out / folder)
            shutil.rmtree(scratch, ignore_errors=True)
            self._rotate(out)
        self.accelerator.wait_for_everyone()

    def _rotate(self, out: Path):
        limit = self.args.save_total_limit
        steps = {path: path.name.removeprefix("checkpoint-") for path in out.glob("checkpoint-*") if path.is_dir()}
        ours = [path for path, step in steps.items() if step.isdecimal()]  # not such as checkpoint-backup
        kept = sorted(ours, key=lambda path: int(steps[path]))
        for old in kept[:-limit] if limit else []:
            shutil.rmtree(old)
