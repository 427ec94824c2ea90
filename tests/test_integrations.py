"""PEFT, Trainer, accelerate and the pipeline, as a user of stock Qwen3-VL would call them."""

import copy

import pytest
import torch
from transformers import DynamicCache, Trainer, TrainingArguments, pipeline

from arrcoc import ARRCOCProcessor, ARRCOCQwen3VLForConditionalGeneration

pytestmark = pytest.mark.core

TOLERANCE = 1e-5


@pytest.fixture
def model(tiny_config, new_model):
    """A random model of the test's own."""
    return new_model(tiny_config())


@pytest.fixture(scope="module")
def batch(make_inputs, page):
    inputs = make_inputs([page(128, 96), [page(64, 64, 1), page(96, 64, 2)]], token_budget=12)
    return {**inputs, "labels": inputs["input_ids"].masked_fill(inputs["mm_token_type_ids"] == 1, -100)}


def train(model, batch, steps=2):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("with_allocator", [False, True], ids=["LoRA", "LoRA and allocator"])
def test_lora_trains_saves_loads_and_merges(with_allocator, model, batch, tmp_path, report):
    peft = pytest.importorskip("peft")
    base = copy.deepcopy(model)
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["arrcoc"] if with_allocator else None
    )
    wrapped = peft.get_peft_model(model, config).train()
    trainable = {name for name, p in wrapped.named_parameters() if p.requires_grad}
    assert any(".arrcoc." in name for name in trainable) == with_allocator
    losses = train(wrapped, batch)
    assert losses[1] < losses[0]
    wrapped.eval().save_pretrained(tmp_path)
    with torch.no_grad():
        expected = wrapped(**batch).logits
        assert (expected - base(**batch).logits).abs().max() > 1e-3
        loaded = peft.PeftModel.from_pretrained(base, tmp_path).eval()
        assert report("LoRA loaded - saved", (loaded(**batch).logits - expected).abs().max()) < TOLERANCE
        merged = loaded.merge_and_unload()
        assert type(merged) is ARRCOCQwen3VLForConditionalGeneration
        assert report("LoRA merged - saved", (merged(**batch).logits - expected).abs().max()) < TOLERANCE
        prompt = {name: value for name, value in batch.items() if name != "labels"}
        assert merged.generate(**prompt, max_new_tokens=2).shape[0] == 2


def test_dora_on_every_linear_layer_starts_as_its_base(model, batch):
    peft = pytest.importorskip("peft")
    base = copy.deepcopy(model)
    with torch.no_grad():
        expected = base(**batch).logits
        wrapped = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules="all-linear", use_dora=True))
        assert (wrapped.eval()(**batch).logits - expected).abs().max() < TOLERANCE


def test_lora_on_the_allocators_convolutions(model, batch):
    peft = pytest.importorskip("peft")
    base = copy.deepcopy(model)
    config = peft.LoraConfig(r=2, target_modules=["perspective.first", "phrases.together"])
    with torch.no_grad():
        expected = base(**batch).logits
        wrapped = peft.get_peft_model(base, config).eval()
        assert (wrapped(**batch).logits - expected).abs().max() < TOLERANCE
    assert sum("lora_A" in name for name, _ in wrapped.named_parameters()) == 2


@pytest.mark.parametrize("kind", ["LoraConfig", "BOFTConfig"])
def test_dora_and_boft_on_every_linear_layer_but_the_allocators_train(kind, model, batch):
    """As docs/limits.md says: rows of zeros have no norm, and 13 channels divide by no block."""
    peft = pytest.importorskip("peft")
    own = {"LoraConfig": {"r": 2, "use_dora": True}, "BOFTConfig": {"boft_block_size": 4}}[kind]
    config = getattr(peft, kind)(target_modules="all-linear", exclude_modules=".*arrcoc.*", **own)
    wrapped = peft.get_peft_model(copy.deepcopy(model), config).train()
    wrapped(**batch).loss.backward()
    gradients = {name: p.grad for name, p in wrapped.named_parameters() if p.grad is not None}
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert not any(".arrcoc." in name for name in gradients)


def test_lora_with_the_allocator_in_train_mode_reaches_the_adapter_of_pooled_tokens(tiny_config, new_model, batch):
    peft = pytest.importorskip("peft")
    model = new_model(tiny_config(coarse_share=0.9))
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["arrcoc"])
    wrapped = peft.get_peft_model(model, config).train()
    wrapped(**batch).loss.backward()
    for name, parameter in wrapped.named_parameters():
        # nothing before the vision tower was chosen, so that the loss does not reach stage 1, nor the restorer; no view is coarse
        if (
            ".arrcoc." in name
            and parameter.requires_grad
            and not any(part in name for part in ("early_participation", "reader", "restorer", "coarse_mark", "scope"))
        ):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


class Pages(torch.utils.data.Dataset):
    def __init__(self, page):
        self.rows = [(page(96, 64, seed), f"what is line {seed}?") for seed in range(6)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return {"picture": self.rows[number][0], "question": self.rows[number][1]}


def test_hooks_of_the_embeddings_see_batches(model, batch):
    seen, given_ids = [], []

    def note(module, given, out):
        seen.append(out.ndim)
        given_ids.append(given[0])

    expected = model(**batch).logits
    hook = model.get_input_embeddings().register_forward_hook(note)
    try:
        assert torch.equal(model(**batch).logits, expected)
    finally:
        hook.remove()
    assert seen == [3] * (1 + 3)  # the prompt, and the question to each picture
    questions = [ids for ids in given_ids if ids.shape != batch["input_ids"].shape]
    assert len({ids.untyped_storage().data_ptr() for ids in questions}) == 1  # copied to the device in one go


@pytest.mark.parametrize("asked", [True, False])
def test_trainer_with_noise_on_the_embeddings(asked, model, batch, make_inputs, page, tmp_path):
    if not asked:  # as of captions
        batch = dict(make_inputs(page(), "", token_budget=6))
        batch["labels"] = batch["input_ids"]
    rows = torch.utils.data.Subset([batch], [0])
    options = TrainingArguments(
        tmp_path, max_steps=1, per_device_train_batch_size=1, neftune_noise_alpha=5.0, remove_unused_columns=False,
        report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    own = copy.deepcopy(model)
    result = Trainer(own, options, train_dataset=rows, data_collator=lambda rows: rows[0]).train()
    assert result.training_loss > 0


def test_trainer_learns_and_resumes_to_the_same_weights(model, page, make_inputs, tmp_path):
    def collate(rows):
        inputs = make_inputs([row["picture"] for row in rows], [row["question"] for row in rows], token_budget=6)
        unlearned = (inputs["attention_mask"] == 0) | (inputs["mm_token_type_ids"] == 1)
        return {**inputs, "labels": inputs["input_ids"].masked_fill(unlearned, -100)}

    def trainer(folder, model):
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=3,
            save_steps=2,
            logging_steps=1,
            per_device_train_batch_size=2,
            learning_rate=1e-2,
            remove_unused_columns=False,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=0,
        )
        return Trainer(model=model, args=arguments, train_dataset=Pages(page), data_collator=collate)

    start = copy.deepcopy(model)
    straight = trainer(tmp_path, model)
    straight.train()
    losses = [entry["loss"] for entry in straight.state.log_history if "loss" in entry]
    assert len(losses) == 3
    assert all(torch.isfinite(torch.tensor(losses)))
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, start.get_parameter(n))}
    assert any(".arrcoc." in name for name in changed)
    assert any(".language_model." in name for name in changed)
    resumed = trainer(tmp_path, start)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(start.get_parameter(name), parameter, rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize(
    "mode", [{}, {"encode_ratio": 0.5}, {"allocation_mode": "foveated"}], ids=["select", "two-stage", "foveated"]
)
@pytest.mark.parametrize("way", ["cpu_offload", "disk_offload", "device_map"])
def test_offloaded_weights_give_the_same_logits(way, mode, model, batch, tmp_path, report):
    accelerate = pytest.importorskip("accelerate")
    batch = {**batch, **mode}
    expected = model(**batch).logits
    prompt = {name: value for name, value in batch.items() if name != "labels"}
    plans = model.allocate(**prompt)
    if way == "cpu_offload":
        model = accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    elif way == "disk_offload":
        model = accelerate.disk_offload(model, str(tmp_path / "offload"), execution_device=torch.device("cpu"))
    else:
        model.save_pretrained(tmp_path)
        model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tmp_path, device_map={"": "cpu"}).eval()
    assert report("offloaded - in memory", (model(**batch).logits - expected).abs().max()) == 0
    for plan, again in zip(plans, model.allocate(**prompt), strict=True):
        assert torch.equal(plan.positions, again.positions)
    blind = {name: value for name, value in prompt.items() if not name.startswith("query_")}
    assert model(**blind).logits.isfinite().all()
    assert model.generate(**prompt, max_new_tokens=2).shape[0] == 2


def test_trainer_predicts_logits_alone_whatever_a_batch_shows(model, page, make_inputs, tmp_path):
    """One picture keeps all cells, one does not, and the last prompt has none: their features have other shapes."""
    prompts = [make_inputs([picture], token_budget=12) for picture in (page(128, 96), page(32, 32), [])]
    length = max(prompt["input_ids"].shape[1] for prompt in prompts)

    def collate(numbers):
        (prompt,) = (dict(prompts[number]) for number in numbers)
        for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
            short = length - prompt[name].shape[1]
            prompt[name] = torch.nn.functional.pad(prompt[name], (short, 0))
        return prompt | {"labels": prompt["input_ids"]}

    options = {"per_device_eval_batch_size": 1, "remove_unused_columns": False, "use_cpu": True, "report_to": "none"}
    trainer = Trainer(model, TrainingArguments(str(tmp_path), **options), collate, eval_dataset=list(range(3)))
    trainer.compute_metrics = lambda predicted: {"rows": len(predicted.predictions)}
    assert trainer.evaluate()["eval_rows"] == 3
    assert trainer.predict(list(range(3))).predictions.shape == (3, length, model.config.text_config.vocab_size)


def test_what_a_pipeline_loads_in_a_dtype_is_saved(checkpoint, tmp_path):
    pipe = pipeline("image-text-to-text", model=str(checkpoint), trust_remote_code=True, dtype=torch.float32)
    assert pipe.model.dtype == torch.float32
    pipe.processor.save_pretrained(tmp_path)
    assert ARRCOCProcessor.from_pretrained(tmp_path).token_budget == pipe.processor.token_budget


def test_what_is_no_tensor_is_refused_as_such(model, processor, page):
    text = "<|vision_start|><|image_pad|><|vision_end|>date?"
    for kind, came in (("np", "ndarray"), (None, "list")):
        inputs = processor(images=[page(64, 64)], text=[text], return_tensors=kind)
        for call in (model, model.generate):
            with pytest.raises(TypeError, match=f"input_ids is a {came} and no tensor; pass return_tensors='pt'"):
                call(**inputs)
        for call in (model.allocate, model.encode_images):
            with pytest.raises(TypeError, match=r"pixel_values is an? \w+ and no tensor; pass return_tensors='pt'"):
                call(**inputs)


@pytest.mark.filterwarnings("error:.*past_key_values. is deprecated")
@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_generate_takes_a_cache_by_either_name_on_any_release(name, model, batch):
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    held = DynamicCache()
    tokens = model.generate(**inputs, max_new_tokens=2, do_sample=False, **{name: held})
    assert torch.equal(tokens, model.generate(**inputs, max_new_tokens=2, do_sample=False))
    assert held.get_seq_length() >= inputs["input_ids"].shape[1]


@pytest.fixture(scope="module")
def pipe(tiny_config, new_model, make_processor):
    return pipeline("image-text-to-text", model=new_model(tiny_config()), processor=make_processor())


def ask(pipe, chats, budget=9, **options):
    options = {"return_full_text": False, "max_new_tokens": 4, "generate_kwargs": {"do_sample": False}} | options
    return pipe(chats, processor_kwargs={"token_budget": budget}, **options)


def test_the_pipeline_answers_one_chat_as_generate_does(pipe, processor, make_inputs, chat, page):
    answer = ask(pipe, chat(page()))
    inputs = make_inputs([page()], token_budget=9)
    tokens = pipe.model.generate(**inputs, max_new_tokens=4, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert answer[0]["generated_text"] == processor.decode(tokens, skip_special_tokens=True)


def test_the_pipeline_answers_several_chats_alike_in_any_batch(pipe, chat, page):
    chats = [chat(page(128, 96)), chat(page(64, 64, 1), "which shape is red?"), chat(page(32, 160, 2), "date?")]
    alone = [ask(pipe, one)[0]["generated_text"] for one in chats]
    for options in ({}, {"batch_size": 2}, {"batch_size": 3}):
        answers = ask(pipe, chats, **options)
        texts = [
            answer[0]["generated_text"] if isinstance(answer, list) else answer["generated_text"] for answer in answers
        ]
        assert texts == alone


def test_the_tokenizer_pads_on_the_left_as_batched_generation_needs(processor):
    """The pipeline pads with the tokenizer's own side, and nobody asks it for another."""
    assert processor.tokenizer.padding_side == "left"


def test_the_pipelines_budget_is_the_processors(pipe, chat, page, make_inputs):
    seen = []
    handle = pipe.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(int((kwargs["input_ids"] == module.config.image_token_id).sum())),
        with_kwargs=True,
    )
    for budget in (3, 9, "full"):
        ask(pipe, chat(page()), budget)
        seen.clear()
        ask(pipe, chat(page()), budget)
        assert seen[0] == int(make_inputs(page(), token_budget=budget)["image_token_counts"])
    handle.remove()


def test_the_pipeline_passes_the_modes_on(pipe, processor, make_inputs, chat, page):
    modes = {"encode_ratio": 0.5, "allocation_mode": "foveated"}
    answer = pipe(
        chat(page()),
        processor_kwargs={"token_budget": 9},
        generate_kwargs=dict(modes),
        max_new_tokens=5,
        return_full_text=False,
    )
    inputs = make_inputs([page()], token_budget=9)
    tokens = pipe.model.generate(**inputs, **modes, max_new_tokens=5)[0, inputs["input_ids"].shape[1] :]
    assert answer[0]["generated_text"] == processor.decode(tokens, skip_special_tokens=True)


@pytest.mark.usefixtures("compiler")
@torch.no_grad()
def test_names_of_arguments_are_not_traced(model, recwarn, monkeypatch):
    monkeypatch.setattr("torch._dynamo.utils.warn_once_cache", set(), raising=False)
    torch._dynamo.explain(model)(input_ids=torch.tensor([[5, 6, 7]]), use_cache=False, output_hidden_states=True)
    assert not [str(each.message) for each in recwarn if "refuse_misspelt" in str(each.message)]


def test_an_adapter_of_single_tokens_loads_where_the_head_is_tied(tiny_model, tmp_path):
    """PEFT saves the tokens of the embeddings alone, which a tied head shares."""
    peft = pytest.importorskip("peft")
    tiny_model().save_pretrained(tmp_path / "base")
    model = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tmp_path / "base")
    assert model.lm_head.weight is model.get_input_embeddings().weight
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [5, 6]})
    peft.get_peft_model(model, config).save_pretrained(tmp_path)
    loaded = ARRCOCQwen3VLForConditionalGeneration.from_pretrained(tmp_path)
    assert any("trainable_tokens_delta" in name for name in loaded.state_dict())
