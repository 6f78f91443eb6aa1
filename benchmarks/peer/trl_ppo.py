"""One process of TRL's ``PPOTrainer`` on the work that `benchmarks/peers.py` describes.

    python benchmarks/peer/trl_ppo.py '<JSON of the work>'

Runs in the environment of TRL, without crlbench; prints one JSON line of figures, the last one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from clock import Clock, figures, prepare, read_work


def main() -> None:
    work = read_work(sys.argv[1])
    prepare(work)
    # The trainer makes its own Accelerator and does not hand ``bf16`` on; this is what `accelerate
    # launch --mixed_precision bf16` sets. It reaches the update, not the rollout.
    os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16" if work["precision"] == "bf16" else "no"
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    clock = Clock(work)
    tokenizer = AutoTokenizer.from_pretrained(work["model"], padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(work["model"], dtype="float32")
    reference = AutoModelForCausalLM.from_pretrained(work["model"], dtype="float32")
    critic = AutoModelForSequenceClassification.from_pretrained(
        work["model"], num_labels=1, dtype="float32"
    )
    rows = work["rows"]
    per_step = work["options"]["rows_per_pass"]
    prompts = [ids for ids in work["prompt_ids"] for _ in range(work["completions"])]
    with tempfile.TemporaryDirectory() as scratch:
        config = PPOConfig(
            output_dir=scratch,
            use_cpu=work["device"] == "cpu",
            bf16=work["precision"] == "bf16",
            seed=work["seed"],
            per_device_train_batch_size=per_step,
            gradient_accumulation_steps=rows // per_step,
            gradient_checkpointing=work["options"]["gradient_checkpointing"],
            local_rollout_forward_batch_size=work["options"]["rollout_rows"],
            num_mini_batches=1,
            num_ppo_epochs=1,
            total_episodes=rows * (work["warmup"] + work["iterations"]),
            response_length=work["tokens"],
            stop_token=None,
            temperature=1.0,
            kl_coef=work["kl"],
            gamma=1.0,
            lam=0.95,
            cliprange=0.2,
            cliprange_value=0.2,
            vf_coef=0.1,
            learning_rate=work["learning_rate"],
            adam_beta1=work["betas"][0],
            adam_beta2=work["betas"][1],
            weight_decay=0.0,
            lr_scheduler_type="constant",
            num_sample_generations=0,
            logging_steps=10**6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = PPOTrainer(
            args=config,
            processing_class=tokenizer,
            model=model,
            ref_model=reference,
            reward_model=clock_reward(clock, len(tokenizer)),
            value_model=critic,
            train_dataset=Dataset.from_dict({"input_ids": prompts}),
            callbacks=[clock.callback()],
        )
        generate = model.generate
        if work["options"]["rollout_autocast"]:
            generate = autocast(generate)
            reference.forward = autocast(reference.forward)
            backbone = getattr(critic, critic.base_model_prefix)
            backbone.forward = autocast(backbone.forward)
        model.generate = clock.decoding(generate)
        trainer.train()
    figures(clock)


def autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function under bf16 autocast, its weights cast once a call."""
    import torch

    def cast(*args: Any, **kwargs: Any) -> Any:
        device = next(v for v in kwargs.values() if isinstance(v, torch.Tensor)).device.type
        with torch.autocast(device, dtype=torch.bfloat16):
            return function(*args, **kwargs)

    return cast


def clock_reward(clock: Clock, vocabulary: int) -> object:
    """The least reward model that the trainer accepts: a token's id over the vocabulary.

    The trainer asks for a backbone under ``base_model_prefix`` that returns hidden states
    (B, L, H) and for a ``score`` of them; there are no weights in it.
    """
    import torch

    class Backbone(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, **_: object) -> object:
            states = input_ids.unsqueeze(-1).float() / vocabulary
            return SimpleNamespace(hidden_states=(states,))

    class TokenReward(torch.nn.Module):
        base_model_prefix = "backbone"

        def __init__(self) -> None:
            super().__init__()
            self.backbone = Backbone()
            self.score = torch.nn.Identity()

    reward = TokenReward()
    reward.backbone.forward = clock.scored(reward.backbone.forward)
    return reward


if __name__ == "__main__":
    main()
