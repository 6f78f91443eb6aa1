"""One process of TRL's ``GRPOTrainer`` on the work that `benchmarks/peers.py` describes.

    python benchmarks/peer/trl_grpo.py '<JSON of the work>'

Runs in the environment of TRL, without crlbench; prints one JSON line of figures, the last one.
"""

from __future__ import annotations

import sys
import tempfile

from clock import Clock, figures, prepare, read_work


def main() -> None:
    work = read_work(sys.argv[1])
    prepare(work)
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    clock = Clock(work)
    tokenizer = AutoTokenizer.from_pretrained(work["model"])
    clock.check_prompts([tokenizer(text)["input_ids"] for text in work["prompts"]])
    model = AutoModelForCausalLM.from_pretrained(work["model"], dtype="float32")
    rows = work["rows"]
    per_step = work["options"]["rows_per_pass"]
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch,
            use_cpu=work["device"] == "cpu",
            bf16=work["precision"] == "bf16",
            seed=work["seed"],
            per_device_train_batch_size=per_step,
            gradient_accumulation_steps=rows // per_step,
            gradient_checkpointing=work["options"]["gradient_checkpointing"],
            num_generations=work["completions"],
            max_completion_length=work["tokens"],
            generation_kwargs={"min_new_tokens": work["tokens"]},
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            beta=work["kl"],
            num_iterations=1,
            epsilon=0.2,
            loss_type="grpo",
            use_bias_correction_kl=False,
            learning_rate=work["learning_rate"],
            adam_beta1=work["betas"][0],
            adam_beta2=work["betas"][1],
            weight_decay=0.0,
            max_grad_norm=1.0,
            lr_scheduler_type="constant",
            max_steps=work["warmup"] + work["iterations"],
            logging_steps=10**6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=clock.scored(rewards),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": work["prompts"]}),
            processing_class=tokenizer,
            callbacks=[clock.callback()],
        )
        model.generate = clock.decoding(model.generate)
        trainer.train()
    figures(clock)


def rewards(completions: list[str], **_: object) -> list[float]:
    """A text's share of odd characters: cheap, and different within a group."""
    return [sum(ord(c) % 2 for c in text) / max(len(text), 1) for text in completions]


if __name__ == "__main__":
    main()
