(** Fixed window. The model of [src/algorithm/periods.rs] and [lua/periods.lua] under one
    quota, with the bound of the documentation: a period has at most [L] units, so a window that
    meets two periods has at most [2 L].

    [twice_the_limit_is_reached] shows that no smaller bound holds. *)

From Proofs Require Import Machine Arithmetic.

Section FixedWindow.
Variables L W : Z.
Hypothesis limit_positive : 0 < L.
Hypothesis window_positive : 0 < W.

Record counter := Counter { last : Z; count : Z }.

Definition counted (s : counter) (now : Z) : Z :=
  if now / W =? last s / W then count s else 0.

Definition fixed_window : machine := {|
  state := counter;
  empty := Counter 0 0;
  capacity := L;
  free s now := Z.max 0 (L - counted s now);
  charge s now c := Counter now (counted s now + c);
  wait s now c := if counted s now <=? L - c then 0 else (now / W + 1) * W - now
|}.

(** The times of a period. *)
Definition of_period (p t : Z) : bool := t / W =? p.

Lemma period_mono : forall a b, a <= b -> a / W <= b / W.
Proof. intros. apply Z.div_le_mono; lia. Qed.

Lemma counted_is_period : forall h now, legal fixed_window h -> latest h <= now ->
  counted (after fixed_window h) now = units (of_period (now / W)) h.
Proof.
  induction h as [|[t c] h IH]; intros now H Hl.
  - cbn. unfold counted. cbn. destruct (_ =? _); reflexivity.
  - cbn in Hl |- *. destruct H as (H & Ht & _). unfold counted at 1. cbn.
    unfold of_period at 1. rewrite (Z.eqb_sym (t / W)).
    destruct (Z.eqb_spec (now / W) (t / W)) as [E|E].
    + rewrite E, IH by assumption. lia.
    + symmetry. rewrite Z.add_0_l. apply units_none.
      eapply Forall_impl; [|exact (legal_times _ h H)]. unfold of_period. cbn. intros [t' c'] Ht'.
      cbn in *. apply Z.eqb_neq. pose proof (period_mono t' t ltac:(lia)).
      pose proof (period_mono t now Hl). lia.
Qed.

Theorem a_period_has_at_most_the_limit : forall h p, legal fixed_window h ->
  units (of_period p) h <= L.
Proof.
  induction h as [|[t c] h IH]; intros p H; cbn; [lia|].
  destruct H as (H & Ht & Hc). specialize (IH p H).
  unfold of_period at 1. destruct (Z.eqb_spec (t / W) p) as [<-|]; [|lia].
  cbn in Hc. rewrite counted_is_period in Hc by assumption. lia.
Qed.

(** A window meets the period of its end and the period before. *)
Lemma window_meets_two_periods : forall x t, within (x - W) x t = true ->
  of_period (x / W - 1) t = true \/ of_period (x / W) t = true.
Proof.
  unfold within, of_period. intros x t H.
  pose proof (Z.div_mod x W ltac:(lia)). pose proof (Z.mod_pos_bound x W window_positive).
  pose proof (Z.div_mod t W ltac:(lia)). pose proof (Z.mod_pos_bound t W window_positive).
  pose proof (period_mono t x ltac:(lia)).
  assert (x / W - 1 <= t / W) by (apply floor_ge; nia). lia.
Qed.

Theorem fixed_window_bound : bounded fixed_window W (2 * L).
Proof.
  intros h x H.
  pose proof (units_cover _ _ _ _ h H (window_meets_two_periods x)).
  pose proof (a_period_has_at_most_the_limit h (x / W - 1) H).
  pose proof (a_period_has_at_most_the_limit h (x / W) H). lia.
Qed.

Theorem fixed_window_wait : exact_wait fixed_window.
Proof.
  intros h now c t H Hl Hc Ht. cbn in *. set (s := after fixed_window h).
  assert (0 <= counted s now) by
    (unfold s; rewrite counted_is_period by assumption; apply (units_nonneg fixed_window); assumption).
  assert (E : forall u, now <= u ->
    counted s u = if u <? (now / W + 1) * W then counted s now else 0).
  { intros u Hu. unfold s. rewrite !counted_is_period by (assumption || lia).
    pose proof (floor_lt u W (now / W + 1) window_positive). pose proof (period_mono now u Hu).
    destruct (Z.ltb_spec u ((now / W + 1) * W)).
    - replace (u / W) with (now / W) by lia. reflexivity.
    - apply units_none. eapply Forall_impl; [|exact (legal_times _ h H)]. intros [t' c'] Ht'.
      cbn in *. unfold of_period. apply Z.eqb_neq. pose proof (period_mono t' now ltac:(lia)). lia. }
  pose proof (Z.div_mod now W ltac:(lia)). pose proof (Z.mod_pos_bound now W window_positive).
  destruct (Z.leb_spec (counted s now) (L - c)); (split; [nia|]).
  - rewrite E by assumption. destruct (t <? _); lia.
  - rewrite E by assumption. destruct (Z.ltb_spec t ((now / W + 1) * W)); lia.
Qed.
End FixedWindow.

Example twice_the_limit_is_reached :
  let h := checks (fixed_window 5 10) [(10, 5); (9, 5)] in
  units (within (18 - 10) 18) h = 2 * 5.
Proof. reflexivity. Qed.
