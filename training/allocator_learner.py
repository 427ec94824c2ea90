"""AllocatorLearner: the base, a scorer and the signals in one module, whose forward is one training step's losses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter

import torch
from torch import nn

from arrcoc.reading import READ_FEATURES
from training import signals
from training.adapt import base_layers
from training.ahead import page_scores, restored_loss
from training.allocator_batches import IMAGE_INPUTS
from training.batches import IGNORED
from training.fingerprint import base_metadata
from training.language_pass import Answer, answer_pass, full_pass, prefixed, rows_alone, soft_pass, with_features
from training.scope import scope_learned
from training.scorers import Scored, encode_once, make_scorer, scores_of
from training.soft_topk import soft_topk

ANNEALED = (1.0, 0.2)  # temperature of a learned baseline's soft top-k at the first and at the last step


class AllocatorLearner(nn.Module):
    """Everything between a batch and its loss. The base is frozen and in eval mode; the scorer is trained.

    Args:
        model: `ARRCOCQwen3VLForConditionalGeneration`.
        weights: weight of each signal by name, from `parse_signals`. With those of stage 1 alone, stage 1 alone is trained.
        scorer: one of `SCORERS`.
    """

    def __init__(self, model: nn.Module, weights: dict[str, float], scorer: str = "arrcoc"):
        super().__init__()
        self.model, self.weights, self.scorer_name = model, dict(weights), scorer
        self.base = base_metadata(model, scorer)
        model.requires_grad_(False)
        layer = make_scorer(scorer, model)
        self.baseline = None if layer is model.model.arrcoc else layer
        layer.requires_grad_(not signals.ALONE.keys() & weights.keys())
        if self.baseline is None:
            for name, part in signals.ALONE.items():
                getattr(layer, part).requires_grad_(name in weights)
        early = [name for name in weights if name.startswith("early_")]
        self.looks_early = bool(early)
        if self.baseline is None and len(early) == len(weights):
            layer.requires_grad_(False)  # what stage 1 shares with stage 2 stays as it is
            for part in (layer.reader, layer.early_participation):
                part.requires_grad_(True)
        # only to learn by: guesses visual tokens from what stage 1 reads
        self.guess = None
        if "early_features" in weights and self.baseline is None:
            self.guess = _begins_at_zero(nn.Linear(READ_FEATURES, model.config.vision_config.out_hidden_size))
        # only to learn by, too: guesses from what a cell finds in the question whether the question names it
        self.names = None
        if "named" in weights and self.baseline is None:
            mix = getattr(layer.participation, "mix", None)
            if mix is None:
                raise ValueError(
                    f"signal named reads what cells find in the question from `participation.mix`, which "
                    f"{type(layer.participation).__name__} lacks; leave it out of --signals"
                )
            self.names = _begins_at_zero(nn.Linear(mix.out_features, 1))
        self.tuned: list[nn.Module] = []  # parts of the language model that are trained too
        self.untuned: dict[int, nn.Module] = {}  # the base's own of those that have no adapter beside them, by number
        self.adapted = None  # PEFT's wrapper of the model, where there is one
        self.progress = 0.0  # share of the run that is done
        self.taught: set[str] = set()  # the signals that have found something to learn from in any batch so far
        self.needs = signals.needs(weights)
        self.train()

    @property
    def scorer(self) -> nn.Module:
        """The module that is trained in every phase."""
        return self.model.model.arrcoc if self.baseline is None else self.baseline

    def train(self, mode: bool = True):
        """As `nn.Module.train`, but the frozen base stays in eval mode."""
        super().train(mode)
        self.model.eval()
        self.scorer.train(mode)
        for part in self.tuned:
            part.train(mode)
        return self

    @property
    def needs_language(self) -> bool:
        """Whether batches need prompts with answers."""
        return bool(self.needs)

    @property
    def needs_prompt(self) -> bool:
        """Whether batches need prompts without answers."""
        return self.scorer_name == "glimpse_prune"

    @contextmanager
    def _finds(self) -> Iterator[Callable[[], list[torch.Tensor]]]:
        """While open, collects what the cells of each image find in its question, where a signal asks for it; what it gives returns
        them, (cells, size) each, in the order of the batch, which the model may score in another."""
        finds, turns = [], []
        if self.names is None:
            yield lambda: finds
            return
        base = self.model.model
        plain = base.score_maps

        def keep(module, arguments, found: torch.Tensor) -> None:
            finds.extend(found.unbind(0) if found.ndim == 3 else [found])

        def score_maps(*given):
            maps = plain(*given)
            turns.extend(maps)
            return maps

        def in_order() -> list[torch.Tensor]:
            # pages that are encoded already are scored in their order, and without the model
            return [found for _, found in sorted(zip(turns, finds, strict=True), key=itemgetter(0))] if turns else finds

        hook = self.scorer.participation.mix.register_forward_hook(keep)
        base.score_maps = score_maps
        try:
            yield in_order
        finally:
            del base.score_maps
            hook.remove()

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """`loss`, and the unweighted value of each signal by name, detached; see `AllocatorCollator` for the batch, and
        `PageCollator` for one of pages that are encoded already.

        Raises:
            ValueError: the batch is not what signal `restored` learns from.
        """
        if "restored" in self.weights and "pages" not in batch:
            raise ValueError(
                "signal restored learns from pages in part; pass pages of encode_ahead(for_restorer=True) through PageCollator"
            )
        with self._finds() as finds:
            compute = self._page_losses if "pages" in batch else self._example_losses
            losses = compute(batch, finds)
        total = sum(self._weight(name) * loss for name, loss in losses.items())
        teaching = {name for name, loss in losses.items() if loss.requires_grad}
        self.taught |= teaching
        if not teaching:
            # nothing in this batch teaches anything, such as one without evidence
            total = total + sum(p.sum() for p in self.parameters() if p.requires_grad) * 0.0
        return {"loss": total, **{name: loss.detach() for name, loss in losses.items()}}

    def _page_losses(self, batch, finds) -> dict[str, torch.Tensor]:
        device = self.model.get_input_embeddings().weight.device
        pairs = [(page.to(device), budgets) for page, budgets in zip(batch["pages"], batch["budgets"], strict=True)]
        if "restored" in self.weights:
            return _means({"restored": [restored_loss(self.scorer, page) for page, _ in pairs]})
        blind = self.scorer_name == "query_blind"
        scored = [s for page, budgets in pairs for s in page_scores(self.model, page, budgets, blind, self.looks_early)]
        covered = [both for page, _ in pairs for both in zip(page.evidence, page.context, strict=True)]
        losses = self._score_losses(scored, covered, finds)
        if self._reads_attention(covered):
            seen = [seen for page, _ in pairs for seen in page.attention]
            losses |= self._attention_losses(scored, seen, covered)
        return losses

    def _example_losses(self, batch, finds) -> dict[str, torch.Tensor]:
        if "coarse" in self.weights:
            return {"coarse": self._coarse_loss(batch)}
        if "scope" in self.weights:
            return {"scope": scope_learned(self.model, batch)}
        with torch.no_grad():
            vision_output = encode_once(self.model, batch)
        temperature = None
        if self.baseline is not None:
            temperature = ANNEALED[0] * (ANNEALED[1] / ANNEALED[0]) ** self.progress
        scored = scores_of(
            self.scorer_name, self.scorer, self.model, batch, vision_output, temperature, self.looks_early
        )
        sizes = [len(image.value) for image in scored]
        covered = list(zip(batch["evidence"].split(sizes), batch["context"].split(sizes), strict=True))
        losses = self._score_losses(scored, covered, finds)
        return losses | self._language_losses(scored, covered, batch, vision_output)

    def _weight(self, name: str) -> float:
        return self.weights[name] * (self.progress if name == "binarize" else 1.0)

    def _score_losses(self, scored: list[Scored], covered, finds) -> dict[str, torch.Tensor]:
        found: dict[str, list] = {}
        for image, (cells, context) in zip(scored, covered, strict=True):
            for name, compute in self._losses_of(image, cells, context).items():
                if name in self.weights:
                    found.setdefault(name, []).append(compute())
        if self.names is not None:
            guesses = [self.names(each).squeeze(-1) for each in finds()]
            targets = [signals.evidence_target(context) for _, context in covered]
            found["named"] = [signals.named_loss(*pair) for pair in zip(guesses, targets, strict=True)]
        return _means(found)

    def _losses_of(self, image: Scored, cells: torch.Tensor, context: torch.Tensor) -> dict[str, Callable]:
        """What gives the loss of each signal that needs the scores of one image alone."""
        value, temperature = image.value, image.temperature
        target = signals.evidence_target(cells)
        both = signals.needed_target(cells, context)
        losses = {
            "evidence": lambda: signals.evidence_loss(value, temperature, target),
            "mass": lambda: signals.mass_loss(value, temperature, target),
            "context": lambda: signals.among_loss(value, temperature, both, signals.CONTEXT_SHARE),
            "binarize": lambda: signals.binarize_loss(value, temperature, image.budget),
            "entropy": lambda: signals.entropy_loss(value, temperature),
        }
        if image.tensions is not None:
            losses["tension"] = lambda: signals.tension_loss(image.tensions)
        if self.guess is not None and image.read is not None:
            losses["early_features"] = lambda: signals.guess_loss(self.guess(image.read), image.tokens)
        if image.early is not None:
            weighed = torch.maximum(target, signals.EARLY_CONTEXT * both)
            losses["early_evidence"] = lambda: _early_loss(image, weighed)
        if image.early is not None and not image.is_full:
            losses["early_distill"] = lambda: _early_loss(image, _chosen(image))
        return losses

    def _reads_attention(self, covered) -> bool:
        """Whether a signal asks how the full model attends to any of these images."""
        unmarked = any(not cells.any() for cells, _ in covered)
        return "distill_attention" in self.weights or ("distill_unmarked" in self.weights and unmarked)

    def _attention_losses(self, scored: list[Scored], attention, covered) -> dict[str, torch.Tensor]:
        each = [
            None if seen is None else signals.attention_loss(image.value, image.temperature, seen)
            for image, seen in zip(scored, attention, strict=True)
        ]
        unmarked = [None if cells.any() else loss for loss, (cells, _) in zip(each, covered, strict=True)]
        found = {"distill_attention": each, "distill_unmarked": unmarked}
        return _means({name: losses for name, losses in found.items() if name in self.weights})

    def _language_losses(self, scored: list[Scored], covered, batch, vision_output) -> dict[str, torch.Tensor]:
        losses, weights, grid = {}, self.weights, batch["image_grid_thw"]
        full = teacher = None
        reads_attention = self._reads_attention(covered)
        if "teacher" in self.needs or "soft" in self.needs:
            full = prefixed(batch, "full_")
        every = {"distill_attention", "distill_answer", "lm_answered"} & weights.keys()
        if reads_attention or every:
            rows = [row for row, (cells, _) in enumerate(covered) if every or not cells.any()]
            with self._base_alone():
                teacher = full_pass(self.model, *rows_alone(full, grid, vision_output, rows), reads_attention)
        if reads_attention:
            seen = dict(zip(rows, teacher.attention, strict=True))
            losses |= self._attention_losses(scored, [seen.get(row) for row in range(len(scored))], covered)
        if "student" in self.needs:
            losses |= self._student_losses(scored, batch, vision_output, teacher)
        if "soft" in self.needs:
            losses |= self._soft_losses(scored, full, grid, vision_output, teacher)
        return losses

    def _soft_losses(self, scored, full, grid, vision_output, teacher: Answer | None) -> dict[str, torch.Tensor]:
        lengths = (full["labels"][:, 1:] != IGNORED).sum(1)
        learned = torch.zeros_like(lengths, dtype=torch.bool)  # rows that lm_answered learns from
        if "lm_answered" in self.weights:
            learned = signals.answered(teacher.logits, teacher.labels, lengths)
        asks_all = "lm_soft_topk" in self.weights
        rows = list(range(len(scored))) if asks_all else learned.nonzero().flatten().tolist()
        if not rows:
            return {}
        some = [scored[row] for row in rows]
        shares = [torch.ones_like(s.value) if s.is_full else soft_topk(s.value, s.budget, s.temperature) for s in some]
        answer = soft_pass(self.model, *rows_alone(full, grid, vision_output, rows), shares)
        losses = {}
        if asks_all:
            losses["lm_soft_topk"] = signals.language_loss(answer.logits, answer.labels)
        if learned.any():
            kept = learned[rows].repeat_interleave(lengths[rows])
            losses["lm_answered"] = signals.language_loss(answer.logits[kept], answer.labels[kept])
        return losses

    def _student_losses(self, scored, batch, vision_output, teacher) -> dict[str, torch.Tensor]:
        # One pass for each kind of gates; the distillation shares the first.
        losses, prompt = {}, prefixed(batch, "kept_")
        kinds = [kind for kind in ("straight_through", "gates", "gumbel") if f"lm_{kind}" in self.weights]
        for number, kind in enumerate(kinds or ["straight_through"]):
            kept = with_features(vision_output, [image.decide(kind) for image in scored], self.model.model)
            answer = answer_pass(self.model, prompt, batch["image_grid_thw"], kept)
            if kinds:
                losses[f"lm_{kind}"] = signals.language_loss(answer.logits, answer.labels)
            if number == 0 and "distill_answer" in self.weights:
                losses["distill_answer"] = signals.answer_loss(answer.logits, teacher.logits)
        return losses

    def _coarse_loss(self, batch) -> torch.Tensor:
        """The answer's loss where the prompt shows a coarse view beside the cells; without gradient where no budget has room for
        one."""
        images = {name: batch[name] for name in IMAGE_INPUTS}
        counts = batch["image_token_counts"]
        kept = self.model.model.get_image_features(
            **images, image_token_counts=counts, allocation_mode="foveated", encode_ratio=1.0, return_dict=True
        )
        answer = answer_pass(self.model, prefixed(batch, "kept_"), batch["image_grid_thw"], kept)
        return signals.language_loss(answer.logits, answer.labels)

    def _base_alone(self):
        return base_layers(self) if self.adapted is None else self.adapted.disable_adapter()


def _early_loss(image: Scored, target: torch.Tensor) -> torch.Tensor | None:
    return signals.among_loss(image.early, image.temperature.detach(), target, signals.EARLY_SHARE)


def _chosen(image: Scored) -> torch.Tensor:
    return torch.zeros_like(image.value).index_fill(0, image.value.detach().topk(image.budget).indices, 1.0)


def _means(found: dict[str, list]) -> dict[str, torch.Tensor]:
    kept = {name: [loss for loss in losses if loss is not None] for name, losses in found.items()}
    return {name: torch.stack(losses).mean() for name, losses in kept.items() if losses}


def _begins_at_zero(guess: nn.Linear) -> nn.Linear:
    """A guess to learn by, which moves nothing that is learned already before it has learned itself: each run has a new one."""
    nn.init.zeros_(guess.weight)
    nn.init.zeros_(guess.bias)
    return guess
