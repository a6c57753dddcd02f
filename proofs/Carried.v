(** Units of earlier windows. The model of [src/algorithm/carried.rs] and [lua/carried.lua], for the two
    algorithms that count by periods. *)

From Proofs Require Import Changes.

(** All units until [hold], none from [zero] on, and evenly less in between. *)
Record ramp := Ramp { hold : Z; zero : Z }.

Definition weight (r : ramp) (u now : Z) : Z :=
  if zero r <=? now then 0
  else if now <=? hold r then u
  else ceiling (u * (zero r - now)) (zero r - hold r).

Definition same (a b : ramp) : bool := (hold a =? hold b) && (zero a =? zero b).

Record group := Group { carries : Z; own : ramp; later : ramp }.

Definition weighs (now : Z) (g : group) : Z :=
  Z.min (weight (own g) (carries g) now) (weight (later g) (carries g) now).

Definition group_end (g : group) : Z := Z.min (zero (own g)) (zero (later g)).

(** The groups of a key, the oldest first. *)
Fixpoint weigh (now : Z) (gs : list group) : Z :=
  match gs with [] => 0 | g :: rest => weighs now g + weigh now rest end.

Fixpoint last_end (gs : list group) : Z :=
  match gs with [] => 0 | g :: rest => Z.max (group_end g) (last_end rest) end.

Fixpoint join (g : group) (gs : list group) : option (list group) :=
  match gs with
  | [] => None
  | h :: rest =>
      if same (own h) (own g) && same (later h) (later g)
      then Some (Group (carries h + carries g) (own h) (later h) :: rest)
      else option_map (cons h) (join g rest)
  end.

(** Of more than 8 groups, the two oldest become one, which leaves with the later of them. *)
Definition at_most_8 (gs : list group) : list group :=
  match gs with
  | a :: b :: rest =>
      if (8 <? length gs)%nat then
        let last := if group_end b <? group_end a then a else b in
        Group (carries a + carries b) (own last) (later last) :: rest
      else gs
  | _ => gs
  end.

Definition add_group (gs : list group) (g : group) : list group :=
  if carries g =? 0 then gs
  else match join g gs with Some joined => joined | None => at_most_8 (gs ++ [g]) end.

(** The rule of a new window, for all groups. *)
Definition bound_by (bound : ramp) (gs : list group) : list group :=
  fold_left (fun acc g =>
    add_group acc (Group (carries g) (own g) (if zero bound <? zero (later g) then bound else later g)))
    gs [].

Definition unexpired (now : Z) (gs : list group) : list group :=
  filter (fun g => now <? group_end g) gs.

Definition is_of (r : ramp) (now : Z) (g : group) : bool := same (own g) r && (0 <? weighs now g).

Definition counts (r : ramp) (now : Z) (gs : list group) : bool := existsb (is_of r now) gs.

(** Takes up to [u] units from the first group of a period that counts. *)
Fixpoint take_from (r : ramp) (now u : Z) (gs : list group) : list group * Z :=
  match gs with
  | [] => ([], 0)
  | g :: rest =>
      if is_of r now g then
        let k := Z.max 0 (Z.min u (carries g)) in
        (Group (carries g - k) (own g) (later g) :: rest, k)
      else let (rest, k) := take_from r now u rest in (g :: rest, k)
  end.

(** The first multiple of the window after a time. *)
Definition next_edge (t w : Z) : Z := (t / w + 1) * w.

(** The first time in [low .. high] at which [used] is at most [target]. *)
Fixpoint search (steps : nat) (low high target : Z) (used : Z -> Z) : Z :=
  match steps with
  | O => low
  | S steps =>
      if low <? high then
        let middle := (low + high) / 2 in
        if used middle <=? target then search steps low middle target used
        else search steps (middle + 1) high target used
      else low
  end.

Definition first_time (low high target : Z) (used : Z -> Z) : Z :=
  search (Z.to_nat (Z.log2 (high - low) + 2)) low (Z.max low high) target used.

(** Groups never hold less than nothing, and so never weigh less. *)
Definition no_debt (gs : list group) : Prop := Forall (fun g => 0 <= carries g) gs.

Lemma weight_nonneg : forall r u now, 0 <= u -> 0 <= weight r u now.
Proof.
  intros r u now Hu. unfold weight. destruct (Z.leb_spec (zero r) now); [lia|].
  destruct (Z.leb_spec now (hold r)); [assumption|]. apply ceiling_nonneg; nia.
Qed.

Lemma weigh_nonneg : forall now gs, no_debt gs -> 0 <= weigh now gs.
Proof.
  intros now gs H. induction H as [|g gs Hg _ IH]; cbn; [lia|]. unfold weighs.
  pose proof (weight_nonneg (own g) _ now Hg). pose proof (weight_nonneg (later g) _ now Hg). lia.
Qed.

Lemma no_debt_filter : forall now gs, no_debt gs -> no_debt (unexpired now gs).
Proof.
  intros now gs H. induction H; cbn; [constructor|]. destruct (_ <? _); [constructor|]; assumption.
Qed.

Lemma no_debt_join : forall g gs joined, 0 <= carries g -> no_debt gs -> join g gs = Some joined ->
  no_debt joined.
Proof.
  intros g gs joined Hg H. revert joined. induction H as [|h gs Hh H IH]; cbn; [discriminate|].
  intros joined. destruct (_ && _).
  - intros E. inversion E. constructor; [cbn; lia|assumption].
  - destruct (join g gs) as [rest|]; cbn; [|discriminate]. intros E. inversion E.
    constructor; [assumption|]. apply IH. reflexivity.
Qed.

Lemma no_debt_add : forall gs g, no_debt gs -> 0 <= carries g -> no_debt (add_group gs g).
Proof.
  intros gs g H Hg. unfold add_group. destruct (_ =? _); [assumption|].
  destruct (join g gs) eqn:J; [exact (no_debt_join _ _ _ Hg H J)|].
  assert (G : no_debt (gs ++ [g])).
  { apply Forall_app. split; [assumption|]. constructor; [assumption|constructor]. }
  clear J H. unfold at_most_8. destruct (gs ++ [g]) as [|a [|b rest]]; try assumption.
  destruct (_ <? _)%nat; [|assumption]. inversion G as [|? ? Ha G']. inversion G' as [|? ? Hb G'']. subst.
  constructor; [cbn; lia|assumption].
Qed.

Lemma no_debt_bound : forall bound gs, no_debt gs -> no_debt (bound_by bound gs).
Proof.
  intros bound gs H. unfold bound_by. assert (A : no_debt []) by constructor.
  revert A. generalize (@nil group). induction H as [|g gs Hg _ IH]; cbn; [trivial|].
  intros acc A. apply IH. apply no_debt_add; assumption.
Qed.

Lemma take_from_within : forall r now u gs gs' k, 0 <= u -> take_from r now u gs = (gs', k) ->
  0 <= k <= u.
Proof.
  intros r now u gs. induction gs as [|g gs IH]; cbn; intros gs' k Hu E; [inversion E; lia|].
  destruct (is_of r now g); [inversion E; lia|].
  destruct (take_from r now u gs) as [rest k'] eqn:T. inversion E; subst. exact (IH _ _ Hu eq_refl).
Qed.

Lemma no_debt_take : forall r now u gs gs' k, 0 <= u -> take_from r now u gs = (gs', k) ->
  no_debt gs -> no_debt gs'.
Proof.
  intros r now u gs. induction gs as [|g gs IH]; cbn; intros gs' k Hu E H; [inversion E; constructor|].
  inversion H as [|? ? Hg H']; subst.
  destruct (is_of r now g); [inversion E; constructor; [cbn; lia|assumption]|].
  destruct (take_from r now u gs) as [rest k'] eqn:T. inversion E; subst.
  constructor; [assumption|]. exact (IH _ _ Hu eq_refl H').
Qed.
